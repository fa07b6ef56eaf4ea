#include "kvstore/server/checkpoint/saved.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "core/base/number.h"
#include "io/json_field.h"

namespace dt::kv {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "dtlaunch server 1";
constexpr std::size_t kMaxSavedKeys = std::size_t{1} << 20;

/// Invalid content of a file, caught where the file's name is known.
[[noreturn]] void wrong(std::string what) { throw std::runtime_error(std::move(what)); }

std::string escape(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c > ' ' && c < 0x7f && c != '%')
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto digits = text.substr(i + 1, 2);
    const auto value = parse_number<unsigned>(digits, 16);
    if (!value || digits.size() != 2) wrong("a key's name is malformed");
    out += static_cast<char>(*value);
    i += 2;
  }
  return out;
}

template <class Number>
Number number_of(std::string_view text, std::string_view what) {
  const auto value = parse_number<Number>(text);
  if (!value) wrong(fmt::format("{} is no number", what));
  return *value;
}

const std::string& at(const Metadata& metadata, const std::string& name) {
  const auto it = metadata.find(name);
  if (it == metadata.end()) wrong("its metadata has no " + name);
  return it->second;
}

json parse_list(const Metadata& metadata, const std::string& name) {
  const auto shallow = [](int depth, json::parse_event_t, json&) { return depth <= 2; };
  auto list = json::parse(at(metadata, name), shallow);
  if (!list.is_array()) wrong(name + " is no list");
  return list;
}

std::string format_keys(const std::vector<data::KeySpec>& keys) {
  json list = json::array();
  for (const auto& key : keys) {
    if (key.flags & data::kTransient)
      list.push_back(nullptr);
    else
      list.push_back({escape(key.name), key.count, safetensors_name(key.dtype),
                      (key.flags & data::kAuxiliary) != 0});
  }
  return list.dump();
}

/// None: a transient key.
std::vector<std::optional<data::KeySpec>> parse_keys(const Metadata& metadata) {
  std::vector<std::optional<data::KeySpec>> keys;
  for (const auto& one : parse_list(metadata, "keys")) {
    auto& key = keys.emplace_back();
    if (one.is_null()) continue;
    key.emplace();
    key->name = unescape(one.at(0).get<std::string>());
    key->count = io::whole_number<std::uint64_t>(one.at(1));
    const auto name = one.at(2).get<std::string>();
    const auto dtype = dtype_of(name);
    if (!dtype) wrong("a key's dtype is " + name);
    key->dtype = *dtype;
    key->flags = one.at(3).get<bool>() ? data::kAuxiliary : 0;
  }
  if (keys.size() > kMaxSavedKeys) wrong("it has too many keys");
  return keys;
}

using ChunkName = std::pair<std::uint32_t, std::uint32_t>;  // key, chunk

std::map<ChunkName, std::uint64_t> parse_updates(const Metadata& metadata) {
  std::map<ChunkName, std::uint64_t> updates;
  for (const auto& one : parse_list(metadata, "updates"))
    updates[{io::whole_number<std::uint32_t>(one.at(0)),
             io::whole_number<std::uint32_t>(one.at(1))}] =
        io::whole_number<std::uint64_t>(one.at(2));
  return updates;
}

/// The ends of the names of SavedChunk::arrays.
constexpr std::array<std::string_view, 3> kSuffixes = {"", ".state1", ".state2"};

/// "key3.chunk0.state1" in its parts.
struct ArrayName {
  ChunkName chunk;
  std::size_t array = 0;  ///< Index in SavedChunk::arrays.
};

ArrayName parse_name(std::string_view name) {
  const std::string_view whole = name;
  ArrayName out;
  for (const std::size_t state : {1U, 2U})
    if (name.ends_with(kSuffixes[state])) out.array = state;
  name.remove_suffix(kSuffixes[out.array].size());
  const auto dot = name.find('.');
  const bool is_ours = name.starts_with("key") && dot != std::string_view::npos &&
                       name.substr(dot).starts_with(".chunk");
  if (!is_ours) wrong(fmt::format("array {} is none of a server's", whole));
  out.chunk.first = number_of<std::uint32_t>(name.substr(3, dot - 3), whole);
  out.chunk.second = number_of<std::uint32_t>(name.substr(dot + 6), whole);
  return out;
}

/// Copies the part of a stored array that lies in first..first+count-1 to its place.
Result<void> copy_slice(const TensorFile& file, const TensorFile::Entry& entry,
                        std::uint64_t entry_first, std::uint64_t first, std::uint64_t count,
                        std::byte* into) {
  const std::uint64_t width = data::element_bytes(entry.dtype);
  const std::uint64_t from = std::max(entry_first, first);
  const std::uint64_t to = std::min(entry_first + entry.elements, first + count);
  if (from >= to) return {};
  std::byte* place = into + (from - first) * width;
  if (from == entry_first && to == entry_first + entry.elements) return file.read(entry, place);
  Payload all(entry.bytes());  // the checksum covers the whole array
  auto read = file.read(entry, all.data());
  if (read) std::memcpy(place, all.data() + (from - entry_first) * width, (to - from) * width);
  return read;
}

}  // namespace

Result<WrittenFile> write_saved(const std::string& path, const SavedBy& by,
                                const std::vector<SavedLoop>& loops,
                                const std::function<bool()>& give_up) {
  std::vector<Tensor> tensors;
  json updates = json::array();
  Metadata metadata;
  std::uint64_t step = 0;
  metadata["optimizer"];
  for (const SavedLoop& loop : loops) {
    step = std::max(step, loop.step);
    if (!loop.optimizer.empty()) metadata["optimizer"] = loop.optimizer;
    for (const SavedChunk& chunk : loop.chunks) {
      const std::string name = fmt::format("key{}.chunk{}", chunk.key, chunk.chunk);
      for (std::size_t i = 0; i < kSuffixes.size(); ++i)
        if (const auto& array = chunk.arrays[i])
          tensors.push_back({fmt::format("{}{}", name, kSuffixes[i]), chunk.dtype, chunk.elements,
                             array->data()});
      if (chunk.updates > 0) updates.push_back({chunk.key.value, chunk.chunk, chunk.updates});
    }
  }
  metadata["format"] = kFormat;
  metadata["epoch"] = std::to_string(by.epoch.value);
  metadata["generation"] = std::to_string(by.generation.value);
  metadata["server"] = std::to_string(by.server);
  metadata["servers"] = std::to_string(by.servers);
  metadata["step"] = std::to_string(step);
  metadata["updates"] = updates.dump();
  if (by.server == 0) {
    std::vector<data::KeySpec> keys;
    for (const SavedLoop& loop : loops)
      if (!loop.keys.empty()) keys = loop.keys;
    metadata["keys"] = format_keys(keys);
  }
  return write_tensor_file(path, tensors, std::move(metadata), give_up);
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& folder) {
  auto manifest = io::read_manifest(folder);
  if (!manifest) return tl::unexpected(manifest.error());
  auto checkpoint = std::shared_ptr<Checkpoint>(new Checkpoint());
  checkpoint->manifest_ = std::move(*manifest);
  try {
    for (const auto& file : checkpoint->manifest_.files) checkpoint->take_file(file, folder);
    for (const auto& file : checkpoint->files_) {
      try {
        checkpoint->take_pieces(*file);
      } catch (const std::exception& error) {
        wrong(fmt::format("{}: {}", file->path(), error.what()));
      }
    }
    checkpoint->arrange();
  } catch (const std::exception& error) {
    return fail(ErrorKind::kInvalid, "checkpoint {} cannot be used: {}", folder, error.what());
  }
  return checkpoint;
}

void Checkpoint::take_file(const io::Manifest::File& named, const std::string& folder) {
  auto opened = TensorFile::open(folder + "/" + named.name);
  if (!opened) wrong(opened.error().message);
  const auto& metadata = opened->metadata();
  const std::string& path = opened->path();
  if (opened->bytes() != named.bytes || opened->header_crc() != named.header_crc)
    wrong(path + " is not the file that the manifest means");
  if (at(metadata, "format") != kFormat) wrong(path + " is of another format");
  const auto index = number_of<std::size_t>(at(metadata, "server"), "server");
  if (index != files_.size() ||
      number_of<std::size_t>(at(metadata, "servers"), "servers") != manifest_.files.size())
    wrong(path + " belongs to another set of servers");
  if (number_of<std::uint32_t>(at(metadata, "epoch"), "epoch") != manifest_.epoch.value)
    wrong(path + " belongs to another epoch");
  files_.push_back(std::make_unique<TensorFile>(std::move(*opened)));
}

void Checkpoint::take_pieces(const TensorFile& file) {
  if (&file == files_.front().get()) {
    for (auto& key : parse_keys(file.metadata())) {
      const auto number = static_cast<std::uint32_t>(keys_.size());
      numbers_.push_back(key ? std::optional(number) : std::nullopt);
      if (key) keys_.push_back(std::move(*key));
    }
    optimizer_ = at(file.metadata(), "optimizer");
    pieces_.resize(keys_.size());
  }
  std::map<ChunkName, Piece> found;
  for (const auto& entry : file.entries()) {
    const ArrayName name = parse_name(entry.name);
    const auto number =
        name.chunk.first < numbers_.size() ? numbers_[name.chunk.first] : std::nullopt;
    if (!number) wrong(entry.name + " is of no key");
    if (entry.dtype != keys_[*number].dtype) wrong(entry.name + " has another dtype");
    Piece& piece = found[name.chunk];
    piece.file = &file;
    piece.entries[name.array] = &entry;
  }
  const auto updates = parse_updates(file.metadata());
  for (auto& [name, piece] : found) {
    const auto* value = piece.entries[0];
    if (!value) wrong(fmt::format("key{}.chunk{} has no values", name.first, name.second));
    for (const auto* array : piece.entries)
      if (array && array->elements != value->elements)
        wrong(array->name + " has another size than its values");
    piece.chunk = name.second;
    if (const auto it = updates.find(name); it != updates.end()) piece.updates = it->second;
    pieces_[*numbers_[name.first]].push_back(piece);
  }
}

/// Checks that every key's chunks exist once and cover the key.
void Checkpoint::arrange() {
  if (files_.empty()) wrong("it has no files");
  for (std::size_t key = 0; key < keys_.size(); ++key) {
    auto& pieces = pieces_[key];
    std::ranges::sort(pieces, {}, &Piece::chunk);
    std::uint64_t first = 0;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].chunk != i) wrong(fmt::format("key '{}' has gaps", escape(keys_[key].name)));
      pieces[i].first = first;
      first += pieces[i].entries[0]->elements;
    }
    if (first != keys_[key].count || pieces.empty())
      wrong(fmt::format("key '{}' has {} elements of {}", escape(keys_[key].name), first,
                        keys_[key].count));
  }
}

Result<RestoredSlice> Checkpoint::load(KeyId key, std::uint64_t first, std::uint64_t count) const {
  DT_CHECK(has(key), "a key of the checkpoint");
  const auto& spec = keys_[key.value];
  if (count > spec.count || first > spec.count - count)
    return fail(ErrorKind::kInvalid, "the checkpoint has {} elements of key '{}', not {}",
                spec.count, escape(spec.name), first + count);
  const std::size_t bytes = count * data::element_bytes(spec.dtype);
  const auto& pieces = pieces_[key.value];
  RestoredSlice slice;
  slice.arrays[0] = Payload(bytes);
  auto piece = std::ranges::upper_bound(pieces, first, {}, &Piece::first);
  if (piece != pieces.begin()) --piece;
  for (; piece != pieces.end() && piece->first < first + count; ++piece) {
    if (first >= piece->first + piece->entries[0]->elements) continue;
    slice.updates = std::max(slice.updates, piece->updates);
    for (std::size_t i = 0; i < piece->entries.size(); ++i) {
      const auto* entry = piece->entries[i];
      if (!entry) continue;
      Payload& array = slice.arrays[i];
      if (array.empty() && bytes > 0) {
        array = Payload(bytes);
        std::memset(array.data(), 0, bytes);  // for pieces without a state
      }
      const auto ok = copy_slice(*piece->file, *entry, piece->first, first, count, array.data());
      if (!ok) return tl::unexpected(ok.error());
    }
  }
  return slice;
}

}  // namespace dt::kv
