/// The state of a process or a thread from /proc.
#pragma once

#include <sys/types.h>

#include <string>

namespace dt::io {

/// The file `name` of `folder`, "/proc/41" or "/proc/self/task/43", up to 8 MiB; empty if it cannot
/// be read.
[[nodiscard]] std::string read_proc_file(const std::string& folder, const char* name);

struct ProcStat {
  pid_t parent = 0;
  char state = '?';
};
/// Parses the content of a file `stat`.
[[nodiscard]] ProcStat parse_proc_stat(const std::string& text);

/// The kernel's state as text: "sh (pid 40): sleeping (S) in do_wait"; empty if it is gone. `id` is
/// the process or thread of `folder`.
[[nodiscard]] std::string kernel_state(const std::string& folder, pid_t id);

}  // namespace dt::io
