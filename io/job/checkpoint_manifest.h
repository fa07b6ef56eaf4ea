/// Checkpoints on the shared volume: their folders, and the manifest that makes one complete.
///
///     <job files>/checkpoints/epoch-000003.g7.partial/  being written or abandoned: never read
///     <job files>/checkpoints/epoch-000003/             manifest.json, server-0.safetensors
///     ...
///
/// Each server writes its file (kvstore/server/checkpoint). When all have reported theirs, the
/// supervisor writes the manifest and renames the folder. A server that was declared lost and still
/// writes has an earlier generation, and so another folder.
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
/// Longer manifests are refused.
inline constexpr std::size_t kMaxManifest = std::size_t{4} << 20;

struct Manifest {
  struct File {
    std::string name;  ///< File name in the checkpoint's folder.
    std::uint64_t bytes = 0;
    std::uint32_t header_crc = 0;  ///< The header holds the checksums of the file's arrays.
    friend bool operator==(const File&, const File&) = default;
  };
  std::string job;         ///< The job that wrote it.
  Epoch epoch;             ///< The epoch that begins with these values.
  Generation generation;   ///< Generation of the commit that saved them.
  std::uint64_t step = 0;  ///< Step of the last update, in the trainer's numbering.
  std::int64_t wall_ns = 0;
  std::vector<File> files;  ///< One per server.
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

[[nodiscard]] std::string to_json(const Manifest& manifest);
/// kInvalid with the defect; file names with a '/' are invalid.
[[nodiscard]] Result<Manifest> manifest_from_json(std::string_view text);

/// "epoch-000003".
[[nodiscard]] std::string checkpoint_name(Epoch epoch);
/// "epoch-000003.g7.partial": the folder that the commit of generation 7 requested.
[[nodiscard]] std::string partial_name(Epoch epoch, Generation generation);
/// The epoch in a complete checkpoint's folder name; nullopt for any other name.
[[nodiscard]] std::optional<Epoch> checkpoint_epoch(std::string_view name);
/// The epoch in an incomplete checkpoint's folder name; nullopt for any other name.
[[nodiscard]] std::optional<Epoch> partial_epoch(std::string_view name);
/// "server-0.safetensors": the file of the job's server `index`.
[[nodiscard]] std::string checkpoint_file(std::uint32_t index);

/// Those of a checkpoint folder's `names` to delete so that at most `keep` complete checkpoints
/// stay: the oldest ones, and incomplete ones up to `newest`, which stays. A complete one of a
/// later epoch is deleted, too: the job was rolled back before that epoch.
[[nodiscard]] std::vector<std::string> outdated_checkpoints(const std::vector<std::string>& names,
                                                            std::size_t keep, Epoch newest);

/// The manifest of the checkpoint in `folder`.
[[nodiscard]] Result<Manifest> read_manifest(const std::string& folder);

}  // namespace dt::io
