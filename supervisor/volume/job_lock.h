/// One job per folder: the lock file in `.dtlaunch`, and what an ended job left in the folder.
#pragma once

#include <optional>
#include <string>

#include "io/asio.h"
#include "supervisor/volume/client.h"
#include "supervisor/volume/lock_holder.h"

namespace dt::supervisor {

/// Makes the lock (a stale one is taken over). Held by another job that is alive, or of which
/// nothing can be seen from here, it is kDenied and says by whom and what to do; trouble with the
/// volume is never kDenied. `by_force` takes it from one of which nothing can be seen; the result
/// is true then, and that holder, if it still lives, is to be given the time to notice.
io::awaitable<Result<bool>> take_job_lock(VolumeClient& volume, std::string job_dir, LockHolder me,
                                          bool by_force = false);

/// Who holds the lock; nothing when nobody does, or when that cannot be found out now.
io::awaitable<std::optional<LockHolder>> job_lock_holder(VolumeClient& volume, std::string job_dir);

/// Removes the lock if it is this holder's.
io::awaitable<Result<void>> drop_job_lock(VolumeClient& volume, std::string job_dir, LockHolder me);

/// Moves host_worker, host_worker_log and events.jsonl of an earlier job to `.dtlaunch/<its name>/`
/// (named by the pointer file, else after the new job); what lies there already is only removed
/// here. Only for a new job, with the lock held.
/// Returns the folder they went to, empty if there were none.
io::awaitable<Result<std::string>> set_old_files_aside(VolumeClient& volume, std::string job_dir,
                                                       std::string new_job);

}  // namespace dt::supervisor
