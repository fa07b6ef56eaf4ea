/// Finds processes in /proc, to end those that a job left behind. Only processes of this user.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/time.h"
#include "io/fd.h"

namespace dt::launcher {

/// Killing leftovers takes milliseconds unless the kernel cannot end them.
inline constexpr Duration kKillDeadline = std::chrono::seconds(2);

/// A handle of a living process that can not come to mean another one.
[[nodiscard]] io::Fd open_pidfd(pid_t pid);
/// ESRCH and a handle that is none are harmless.
void signal_pidfd(const io::Fd& pidfd, int signal);

/// Living processes whose environment, as given at exec, has exactly the entry "NAME=value".
[[nodiscard]] std::vector<io::Fd> marked_processes(std::string_view entry);

/// What every DT_MARK of a job's processes on a host begins with, whichever agent started them:
/// "DT_MARK=job/host/".
[[nodiscard]] std::string mark_of(std::string_view job, std::string_view host);

/// Kills all but this process and its parent whose environment has an entry that begins with
/// `mark`, until none is left or `limit` is over; how many are left.
std::size_t kill_marked(std::string_view mark, Duration limit);

/// Living descendants of `root`, without root itself and without those of `spared` and what is
/// below them.
[[nodiscard]] std::vector<io::Fd> descendants(pid_t root, const std::vector<pid_t>& spared = {});

/// What the kernel says of `root` and its living descendants, for people, the first few of them:
/// "sh (pid 40): sleeping (S) in do_wait; python3 (pid 41): stopped (T) in do_signal_stop".
[[nodiscard]] std::string process_states(pid_t root);

/// Resident memory of `root` and its descendants, of at most 256 processes, in bytes; 0 when it has
/// ended. Children that a thread other than the first has forked are not found.
[[nodiscard]] std::uint64_t resident_bytes(pid_t root);

}  // namespace dt::launcher
