/// One job per folder: the lock file in `.dtlaunch`, and what an ended job left in the folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/asio.h"
#include "supervisor/volume.h"

namespace dt::supervisor {

/// What the lock file says.
struct LockHolder {
  std::string job;
  std::string host;     ///< Its name: several machines may have the same one.
  std::string machine;  ///< /etc/machine-id; empty where there is none.
  std::string boot_id;  ///< Of the running kernel: no two machines have the same one.
  std::int64_t pid = 0;
  std::uint64_t start = 0;  ///< The process's start time in its boot's clock ticks.

  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

/// This very process, for this job.
[[nodiscard]] LockHolder this_process(std::string job);
[[nodiscard]] std::string to_json(const LockHolder& holder);
[[nodiscard]] Result<LockHolder> lock_from_json(const std::string& text);

/// Start time of a process of this machine in clock ticks; 0: no such process, or a zombie.
[[nodiscard]] std::uint64_t process_start(std::int64_t pid);

/// Whether the holder, seen from `me`, is surely gone. In the same boot of the same host: it has no
/// process with that pid and start time, or is of the same job, whose journal's lock
/// (supervisor/store.h) whoever asks has. In another boot: host name and machine id, which must be
/// there, say that it was an earlier one of this very machine. Nothing can be seen of any other.
[[nodiscard]] bool is_stale(const LockHolder& holder, const LockHolder& me);

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
/// (named by the pointer file, else after the new job). Only for a new job, with the lock held.
/// Returns the folder they went to, empty if there were none.
io::awaitable<Result<std::string>> set_old_files_aside(VolumeClient& volume, std::string job_dir,
                                                       std::string new_job);

}  // namespace dt::supervisor
