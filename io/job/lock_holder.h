/// The holder of a job folder's lock, from the lock file, and whether it can still be alive.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace dt::io {

/// The content of the lock file.
struct LockHolder {
  std::string job;
  std::string host;     ///< Its name: several machines may have the same one.
  std::string machine;  ///< /etc/machine-id; empty without one.
  std::string boot_id;  ///< Id of the kernel's boot: no two machines have the same one.
  std::int64_t pid = 0;
  std::uint64_t start = 0;  ///< The process's start time in its boot's clock ticks.
  /// The inode of the pid's PID namespace (/proc/self/ns/pid); 0 if unknown.
  std::uint64_t pid_namespace = 0;

  friend bool operator==(const LockHolder&, const LockHolder&) = default;
};

/// This very process, for this job.
[[nodiscard]] LockHolder this_process(std::string job);
[[nodiscard]] std::string to_json(const LockHolder& holder);
[[nodiscard]] Result<LockHolder> lock_from_json(const std::string& text);

/// Start time of a process of this machine in clock ticks; 0: no such process, or a zombie.
[[nodiscard]] std::uint64_t process_start(std::int64_t pid);

/// Whether both have the same running kernel and PID namespace: processes of another one cannot be
/// seen. If an older lock names none, the host's name decides.
[[nodiscard]] bool same_boot(const LockHolder& a, const LockHolder& b);

/// Whether the holder, seen from `me`, is surely gone. With the same view (same_boot): it has no
/// process with that pid and start time, or is of the same job, whose journal's lock
/// (supervisor/files/journal_file.h) whoever asks has. In another boot: host name and machine id,
/// which must be there, say that it was an earlier one of this very machine. Nothing can be seen of
/// any other.
[[nodiscard]] bool is_stale(const LockHolder& holder, const LockHolder& me);

}  // namespace dt::io
