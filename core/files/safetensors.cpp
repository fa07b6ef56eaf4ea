#include "core/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "core/base/lookup.h"
#include "core/base/number.h"

namespace dt::safetensors {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksums = "crc32c";
constexpr std::size_t kChecksumDigits = 8;

/// Bytes of a number of each dtype.
const std::map<std::string, std::uint64_t> kWidths = {
    {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"I32", 4}, {"I16", 2},
    {"I8", 1},  {"U64", 8}, {"U32", 4}, {"U16", 2},  {"U8", 1},  {"BOOL", 1}};

std::uint64_t width_of(const std::string& dtype) {
  if (const auto* width = find_in(kWidths, dtype)) return *width;
  throw std::runtime_error("dtype " + dtype);
}

std::uint64_t whole_number(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  throw std::runtime_error("a size or place is no whole number from 0");
}

/// The bytes that the shape asks for; above `most` if they do not fit there.
std::uint64_t bytes_of(const Array& array, std::uint64_t most) {
  std::uint64_t bytes = width_of(array.dtype);
  if (std::ranges::find(array.shape, 0U) != array.shape.end()) return 0;
  for (const std::uint64_t n : array.shape) {
    if (n > most / bytes) return most + 1;
    bytes *= n;
  }
  return bytes;
}

Array parse_array(const std::string& name, const json& one, std::uint64_t data_bytes) {
  Array array{name, one.at("dtype").get<std::string>(), {}, 0, 0};
  const json& shape = one.at("shape");
  const json& offsets = one.at("data_offsets");
  if (!shape.is_array()) throw std::runtime_error(name + " has no shape");
  if (!offsets.is_array() || offsets.size() != 2) throw std::runtime_error(name + " has no place");
  for (const json& n : shape) array.shape.push_back(whole_number(n));
  array.begin = whole_number(offsets[0]);
  array.end = whole_number(offsets[1]);
  const bool fits = array.begin <= array.end && array.end <= data_bytes &&
                    bytes_of(array, data_bytes) == array.end - array.begin;
  if (!fits) throw std::runtime_error(name + " lies outside the file or has another size");
  return array;
}

/// Neither deeper than the format, nor a name twice, of which nlohmann keeps the last.
json parse_object(std::string_view text) {
  std::set<std::string> names;
  const auto take = [&names](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 &&
        !names.insert(value.get<std::string>()).second)
      throw std::runtime_error(value.get<std::string>() + " is there twice");
    return depth <= 3;
  };
  auto all = json::parse(text, take);
  if (!all.is_object()) throw std::runtime_error("its header is no JSON object");
  return all;
}

/// The arrays fill `data_bytes`, each once.
void check_places(const std::vector<Array>& arrays, std::uint64_t data_bytes) {
  std::uint64_t at = 0;
  for (const Array& array : arrays) {
    if (array.begin != at) throw std::runtime_error("arrays overlap or leave gaps");
    at = array.end;
  }
  if (at != data_bytes) throw std::runtime_error("its arrays end before the file does");
}

}  // namespace

std::string format_header(const Header& header, Order order) {
  std::vector<const Array*> arrays;
  for (const Array& array : header.arrays) arrays.push_back(&array);
  if (order == Order::kOfNames) std::ranges::sort(arrays, {}, &Array::name);
  const std::string_view form =
      order == Order::kOfNames ? R"({0}:{{"data_offsets":[{3},{4}],"dtype":"{1}","shape":[{2}]}})"
                               : R"({0}:{{"dtype":"{1}","shape":[{2}],"data_offsets":[{3},{4}]}})";
  std::string text = "{";
  if (!header.metadata.empty())
    text += fmt::format("\"{}\":{}", kMetadata, json(header.metadata).dump());
  for (const Array* array : arrays) {
    if (text.size() > 1) text += ',';
    text += fmt::format(fmt::runtime(form), json(array->name).dump(), array->dtype,
                        fmt::join(array->shape, ","), array->begin, array->end);
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the format aligns the arrays
  const std::uint64_t size = text.size();
  std::string length(kLengthBytes, '\0');
  std::memcpy(length.data(), &size, sizeof size);
  return length + text;
}

Result<std::uint64_t> parse_length(std::string_view bytes, std::uint64_t file_bytes) {
  if (bytes.size() != kLengthBytes || file_bytes < kLengthBytes)
    return fail(ErrorKind::kInvalid, "cut short");
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader || length > file_bytes - kLengthBytes)
    return fail(ErrorKind::kInvalid, "not of the safetensors format, or cut short");
  return length;
}

Result<Header> parse_header(std::string_view text, std::uint64_t data_bytes) {
  Header header;
  try {
    const json all = parse_object(text);
    for (const auto& [name, one] : all.items()) {
      if (name == kMetadata)
        header.metadata = one.get<Metadata>();
      else
        header.arrays.push_back(parse_array(name, one, data_bytes));
    }
    std::ranges::sort(header.arrays, {}, [](const Array& a) { return std::pair(a.begin, a.end); });
    check_places(header.arrays, data_bytes);
  } catch (const std::exception& wrong) {
    return fail(ErrorKind::kInvalid, "{}", wrong.what());
  }
  return header;
}

void set_checksums(Metadata& metadata, std::span<const std::uint32_t> checksums) {
  metadata[kChecksums] = fmt::format("{:08x}", fmt::join(checksums, ""));
}

Result<std::vector<std::uint32_t>> checksums_of(const Header& header) {
  const auto found = header.metadata.find(kChecksums);
  if (found == header.metadata.end() ||
      found->second.size() != header.arrays.size() * kChecksumDigits)
    return fail(ErrorKind::kInvalid, "no checksum for each array");
  std::vector<std::uint32_t> checksums;
  for (std::string_view digits = found->second; !digits.empty();
       digits.remove_prefix(kChecksumDigits)) {
    const auto crc = parse_number<std::uint32_t>(digits.substr(0, kChecksumDigits), 16);
    if (!crc) return fail(ErrorKind::kInvalid, "a checksum is not of hex digits");
    checksums.push_back(*crc);
  }
  return checksums;
}

}  // namespace dt::safetensors
