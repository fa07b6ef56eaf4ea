/// The job of a folder, also while the shared volume stalls: that is when people ask.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/job/job_pointer.h"

namespace dt::supervisor {

/// How long a person waits for the volume's answer.
inline constexpr Duration kVolumePatience = std::chrono::seconds(5);

/// The folder's pointer; kTimeout while the volume stalls.
[[nodiscard]] Result<io::JobPointer> read_pointer(const std::string& job_dir);

/// The same; while the volume stalls, the folder's job whose supervisor listens on this machine:
/// its name, socket and state folder alone are known then.
[[nodiscard]] Result<io::JobPointer> find_job(const std::string& job_dir);

}  // namespace dt::supervisor
