/// Verifies a checkpoint's files before a job starts from them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/base/result.h"
#include "io/job/checkpoint_manifest.h"

namespace dt::io {

/// Reports progress in bytes.
using CheckProgress = std::function<void(std::uint64_t done, std::uint64_t total)>;

/// Reads every file of the checkpoint in `folder`, from its beginning to its end, and compares the
/// checksums of its header and of its arrays (core/files/safetensors.h). The error names the first
/// file that differs.
[[nodiscard]] Result<void> check_checkpoint(const std::string& folder, const Manifest& manifest,
                                            const CheckProgress& progress = {});

}  // namespace dt::io
