#include "io/job/checkpoint_manifest.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "core/base/number.h"
#include "io/fd.h"
#include "io/json_field.h"

namespace dt::io {
namespace {

constexpr std::string_view kEpochPrefix = "epoch-";
constexpr std::string_view kPartialSuffix = ".partial";
constexpr std::string_view kManifestFormat = "dtlaunch checkpoint 1";

std::uint32_t parse_hex32(const std::string& text) {
  const auto number = parse_number<std::uint32_t>(text, 16);
  if (!number || text.size() != 8) throw std::runtime_error("'" + text + "' is no checksum");
  return *number;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  using Json = nlohmann::ordered_json;
  Json files = Json::array();
  for (const auto& file : manifest.files)
    files.push_back(Json{{"name", file.name},
                         {"bytes", file.bytes},
                         {"header_crc32c", fmt::format("{:08x}", file.header_crc)}});
  const Json all{{"format", kManifestFormat},     {"job", manifest.job},
                 {"epoch", manifest.epoch.value}, {"generation", manifest.generation.value},
                 {"step", manifest.step},         {"wall_ns", manifest.wall_ns},
                 {"files", std::move(files)}};
  return all.dump(2) + "\n";
}

Result<Manifest> manifest_from_json(std::string_view text) {
  if (text.size() > kMaxManifest) return fail(ErrorKind::kInvalid, "longer than any manifest");
  try {
    const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
      return depth <= 4;
    };
    const auto all = nlohmann::json::parse(text, shallow);
    if (all.at("format") != kManifestFormat)
      return fail(ErrorKind::kInvalid, "of another format than '{}'", kManifestFormat);
    Manifest manifest;
    manifest.job = all.at("job").get<std::string>();
    manifest.epoch = Epoch(whole_number<std::uint32_t>(all.at("epoch")));
    manifest.generation = Generation(whole_number<std::uint64_t>(all.at("generation")));
    manifest.step = whole_number<std::uint64_t>(all.at("step"));
    manifest.wall_ns = whole_number<std::int64_t>(all.at("wall_ns"));
    for (const auto& one : all.at("files")) {
      Manifest::File file;
      file.name = one.at("name").get<std::string>();
      file.bytes = whole_number<std::uint64_t>(one.at("bytes"));
      file.header_crc = parse_hex32(one.at("header_crc32c").get<std::string>());
      if (file.name.empty() || file.name.find('/') != std::string::npos)
        return fail(ErrorKind::kInvalid, "'{}' is no file of a checkpoint", file.name);
      manifest.files.push_back(std::move(file));
    }
    return manifest;
  } catch (const std::exception& wrong) {
    return fail(ErrorKind::kInvalid, "not a checkpoint's manifest ({})", wrong.what());
  }
}

std::string checkpoint_name(Epoch epoch) { return fmt::format("{}{:06}", kEpochPrefix, epoch); }

std::string partial_name(Epoch epoch, Generation generation) {
  return fmt::format("{}.g{}{}", checkpoint_name(epoch), generation, kPartialSuffix);
}

std::optional<Epoch> checkpoint_epoch(std::string_view name) {
  if (!name.starts_with(kEpochPrefix)) return std::nullopt;
  const auto number = parse_number<std::uint32_t>(name.substr(kEpochPrefix.size()));
  // "epoch-3" is not a name we make.
  if (!number || checkpoint_name(Epoch(*number)) != name) return std::nullopt;
  return Epoch(*number);
}

std::optional<Epoch> partial_epoch(std::string_view name) {
  if (!name.ends_with(kPartialSuffix)) return std::nullopt;
  return checkpoint_epoch(name.substr(0, name.find('.')));
}

std::string checkpoint_file(std::uint32_t index) {
  return fmt::format("server-{}.safetensors", index);
}

std::vector<std::string> outdated_checkpoints(const std::vector<std::string>& names,
                                              std::size_t keep, Epoch newest) {
  std::vector<Epoch> whole{newest};
  for (const auto& name : names)
    if (const auto epoch = checkpoint_epoch(name); epoch && *epoch < newest)
      whole.push_back(*epoch);
  std::sort(whole.begin(), whole.end(), std::greater<>());
  const Epoch oldest_kept = whole[std::min(whole.size(), std::max<std::size_t>(keep, 1)) - 1];
  std::vector<std::string> out;
  for (const auto& name : names) {
    const auto epoch = checkpoint_epoch(name);
    const auto partial = partial_epoch(name);
    const bool is_kept = epoch && *epoch >= oldest_kept && *epoch <= newest;
    if ((epoch && !is_kept) || (partial && *partial <= newest)) out.push_back(name);
  }
  return out;
}

Result<Manifest> read_manifest(const std::string& folder) {
  const std::string path = folder + "/" + std::string(kManifestName);
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return tl::unexpected(errno_error(errno, "open " + path));
  std::string text;
  if (!read_rest(fd.get(), text, kMaxManifest + 1))
    return tl::unexpected(errno_error(errno, "read " + path));
  return manifest_from_json(text).map_error([&](const Error& e) { return e.at(path); });
}

}  // namespace dt::io
