/// Whether a shared volume's server is there, before a program with nothing else to do uses it.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/base/time.h"

namespace dt::io {

inline constexpr Duration kVolumePatience = std::chrono::seconds(20);

/// Asks the file system of `path`, which need not exist, and waits at most `limit`: then kTimeout,
/// whose text names `place`. A process of its own asks, since nothing ends a call on a volume whose
/// server is away, neither the thread nor the process that made it; it ends when the volume
/// answers. For programs with one thread: it forks.
[[nodiscard]] Result<void> volume_answers(const std::string& path, const std::string& place,
                                          Duration limit = kVolumePatience);

}  // namespace dt::io
