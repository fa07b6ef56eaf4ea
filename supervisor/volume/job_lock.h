/// One job per folder: the lock file in `.dtlaunch`, and an ended job's files in the folder.
#pragma once

#include <optional>
#include <string>

#include "io/awaitable.h"
#include "io/job/lock_holder.h"

namespace dt::supervisor {

class VolumeClient;

[[nodiscard]] std::string lock_path(const std::string& job_dir);

/// Makes the lock, or takes over a stale one. If its holder is another job that is alive, or that
/// cannot be observed from here, kDenied with the holder and the remedy; trouble with the volume is
/// never kDenied. `by_force` takes it from a holder that cannot be observed; the result is true
/// then, and the caller must give that holder time to notice.
io::awaitable<Result<bool>> take_job_lock(VolumeClient& volume, std::string job_dir,
                                          io::LockHolder me, bool by_force = false);

/// The holder of the lock; nullopt: there is none. An error: it cannot be read or understood now.
io::awaitable<Result<std::optional<io::LockHolder>>> job_lock_holder(VolumeClient& volume,
                                                                     std::string job_dir);

/// Removes the lock if it is this holder's.
io::awaitable<Result<void>> drop_job_lock(VolumeClient& volume, std::string job_dir,
                                          io::LockHolder me);

/// Moves host_worker, host_worker_log and events.jsonl of an earlier job to `.dtlaunch/<its name>/`
/// (named by the pointer file, else after the new job); files that are there already are only
/// removed here. Only for a new job, with the lock held. Files that no earlier job is known to have
/// left stay, unless the new job is `elastic` and needs their names. Returns where host_worker is
/// now, if it was moved.
io::awaitable<Result<std::optional<std::string>>> set_old_files_aside(VolumeClient& volume,
                                                                      std::string job_dir,
                                                                      std::string new_job,
                                                                      bool elastic);

}  // namespace dt::supervisor
