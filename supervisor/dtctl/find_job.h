/// The job of a folder, also while the shared volume stalls: that is when people ask.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/job/job_pointer.h"
#include "io/volume_answers.h"

namespace dt::supervisor {

/// How long a person waits for the volume's answer.
inline constexpr Duration kVolumePatience = std::chrono::seconds(5);

/// The pointer of the job folder of which `volume` asks; kTimeout while the volume stalls.
[[nodiscard]] Result<io::JobPointer> read_pointer(io::VolumeQuestion& volume,
                                                  Duration patience = kVolumePatience);

/// The same; while the volume stalls, the folder's job whose supervisor listens on this machine:
/// its name, socket and state folder alone are known then.
[[nodiscard]] Result<io::JobPointer> find_job(io::VolumeQuestion& volume,
                                              Duration patience = kVolumePatience);

/// The refusal, where another user's job runs.
std::optional<Error> not_ours(const std::string& job_dir, const io::JobPointer& job);

/// The name of the job's user, if it is another one; root may look at any job.
std::optional<std::string> other_owner(const std::string& job_dir);

}  // namespace dt::supervisor
