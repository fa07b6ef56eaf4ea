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

namespace dt::io {

/// Killing leftovers takes milliseconds unless the kernel cannot end them.
inline constexpr Duration kKillDeadline = std::chrono::seconds(2);

/// A handle of a living process; it never refers to another one.
[[nodiscard]] Fd open_pidfd(pid_t pid);
/// Ignores ESRCH and an empty handle.
void signal_pidfd(const Fd& pidfd, int signal);

/// Living processes whose environment, as given at exec, has exactly the entry "NAME=value".
[[nodiscard]] std::vector<Fd> marked_processes(std::string_view entry);

/// Those of them below `root`. Where orphans stay below it (PR_SET_CHILD_SUBREAPER) these are all
/// of root's processes, and finding them costs what its tree is large, not what the machine runs.
[[nodiscard]] std::vector<Fd> marked_descendants(pid_t root, std::string_view entry);

/// The prefix of every DT_MARK of a job's processes on a host, whichever agent started them:
/// "DT_MARK=job/host/".
[[nodiscard]] std::string mark_of(std::string_view job, std::string_view host);

/// Kills the processes whose environment has an entry that begins with `mark`, except this one and
/// its parent, until none is left or `limit` is over. Returns how many are left.
std::size_t kill_marked(std::string_view mark, Duration limit);

/// Living descendants of `root` that have no such entry, without `spared` and their descendants.
[[nodiscard]] std::vector<Fd> unmarked_descendants(pid_t root, std::string_view entry,
                                                   const std::vector<pid_t>& spared);

/// Living descendants of `root`, without root itself and without `spared` and their descendants.
[[nodiscard]] std::vector<Fd> descendants(pid_t root, const std::vector<pid_t>& spared = {});

/// Living children of this process whose environment, as given at exec, has exactly this entry.
[[nodiscard]] std::vector<pid_t> marked_children(std::string_view entry);

/// kernel_state() of `root` and its first few living descendants:
/// "sh (pid 40): sleeping (S) in do_wait; python3 (pid 41): stopped (T) in do_signal_stop".
/// `forkers`: processes that fork others into root's process group; those count as root's.
[[nodiscard]] std::string process_states(pid_t root, const std::vector<pid_t>& forkers = {});

/// Resident memory of `root` and its descendants, of at most 256 processes, in bytes; 0 when it has
/// ended. `forkers`: as above.
[[nodiscard]] std::uint64_t resident_bytes(pid_t root, const std::vector<pid_t>& forkers = {});

}  // namespace dt::io
