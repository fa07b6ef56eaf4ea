/// Checkpoints on the shared volume: their folders, and the manifest that makes one of them count.
///
///     <job files>/checkpoints/epoch-000003.g7.partial/  being written, or given up: never read
///     <job files>/checkpoints/epoch-000003/             whole: manifest.json, server-0.safetensors
///     ...
///
/// Each server writes its file (kvstore/server/checkpoint), the supervisor the manifest when it has
/// heard of all of them; then it renames the folder. A server that was given up as lost and still
/// writes has another generation, and so another folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"

namespace dt::io {

inline constexpr std::string_view kManifestName = "manifest.json";
/// A longer manifest is none of ours.
inline constexpr std::size_t kMaxManifest = std::size_t{4} << 20;

struct Manifest {
  struct File {
    std::string name;  ///< In the checkpoint's folder.
    std::uint64_t bytes = 0;
    std::uint32_t header_crc = 0;  ///< The file's header has the checksums of all that is in it.
    friend bool operator==(const File&, const File&) = default;
  };
  std::string job;         ///< That wrote it.
  Epoch epoch;             ///< Begins with these values.
  Generation generation;   ///< Of the commit they were saved at.
  std::uint64_t step = 0;  ///< The last update's step, as the trainer numbers them.
  std::int64_t wall_ns = 0;
  std::vector<File> files;  ///< One per server.
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

[[nodiscard]] std::string to_json(const Manifest& manifest);
/// kInvalid says what is wrong; file names with a '/' are.
[[nodiscard]] Result<Manifest> manifest_from_json(std::string_view text);

/// "epoch-000003".
[[nodiscard]] std::string checkpoint_name(Epoch epoch);
/// "epoch-000003.g7.partial": what the commit of generation 7 asked for.
[[nodiscard]] std::string partial_name(Epoch epoch, Generation generation);
/// Of a whole checkpoint's folder name; nothing for any other name.
[[nodiscard]] std::optional<Epoch> checkpoint_epoch(std::string_view name);
/// The same of one that is not whole.
[[nodiscard]] std::optional<Epoch> partial_epoch(std::string_view name);
/// "server-0.safetensors": what server number `index` of the job writes.
[[nodiscard]] std::string checkpoint_file(std::uint32_t index);

/// Which of a checkpoint folder's `names` go when at most `keep` whole checkpoints stay: the oldest
/// ones, and what was given up before `newest`, which stays. A whole one of a later epoch goes,
/// too: the job went back before it counted.
[[nodiscard]] std::vector<std::string> outdated_checkpoints(const std::vector<std::string>& names,
                                                            std::size_t keep, Epoch newest);

/// The manifest of the checkpoint in `folder`.
[[nodiscard]] Result<Manifest> read_manifest(const std::string& folder);

}  // namespace dt::io
