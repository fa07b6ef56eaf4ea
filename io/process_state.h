/// The state of a process or a thread from /proc; what this one may use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace dt::io {

/// The file `name` of `folder`, "/proc/41" or "/proc/self/task/43", up to 8 MiB; empty if it cannot
/// be read.
[[nodiscard]] std::string read_proc_file(const std::string& folder, const char* name);

/// The names in a folder of /proc that are numbers: its processes, or threads.
[[nodiscard]] std::vector<pid_t> numbers_in(const std::string& folder);
/// Whether this file, or process by its folder, is this user's.
[[nodiscard]] bool is_mine(const std::string& path);

struct ProcStat {
  pid_t parent = 0;
  char state = '?';         ///< The kernel's letter; '?': there is no such process.
  std::uint64_t start = 0;  ///< When it began, in clock ticks of its boot.

  /// It has not ended, only waiting for its parent to take note.
  [[nodiscard]] bool lives() const { return state != 'Z' && state != 'X' && state != '?'; }
};
[[nodiscard]] ProcStat stat_of(std::int64_t pid);

/// The kernel's state as text: "sh (pid 40): sleeping (S) in do_wait"; empty if it is gone. `id` is
/// the process or thread of `folder`.
[[nodiscard]] std::string kernel_state(const std::string& folder, pid_t id);

/// Cores that this process may run on, at least 1.
[[nodiscard]] std::uint32_t usable_cores();

}  // namespace dt::io
