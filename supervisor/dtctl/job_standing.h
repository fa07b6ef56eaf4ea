/// The job of a folder, also while the shared volume stalls: that is when people ask. Whether a job
/// of this user can be alive, as far as this machine knows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/fd.h"
#include "io/job/job_pointer.h"
#include "io/volume_answers.h"

namespace dt::supervisor {

enum class Standing {
  kRuns,     ///< A dtlaunch or a supervisor of it lives here.
  kLeft,     ///< It was started here, nobody of it lives, and nobody took its folder over.
  kUnknown,  ///< It may live on another machine.
};

struct JobHere {
  std::string name;
  Standing standing = Standing::kUnknown;
  std::string socket;        ///< Where its supervisor listens, if it began on this machine.
  std::vector<io::Fd> held;  ///< kLeft: the locks without which it cannot be resumed.
};

/// Does not wait, except for the volume of the job's folder.
[[nodiscard]] JobHere look_at_job(const std::string& name);

/// The names of all jobs that have files on this machine as a master.
[[nodiscard]] std::vector<std::string> jobs_here();

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
