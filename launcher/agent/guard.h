/// The guard: a second, tiny process that outlives the agent just long enough to end everything the
/// agent started. It holds the read end of a pipe whose only write end is the agent's; when the
/// pipe closes, it kills every process group named on it, all its own descendants, and every
/// process that carries the job's marker, until none is left. Then it removes the agent's files.
///
/// The first guard is the agent's parent and adopts orphans (PR_SET_CHILD_SUBREAPER), so whatever
/// the agent started stays among its descendants, even with a session and an environment of its
/// own: "no child left" is then certain. A guard made later is the agent's child and relies on
/// groups, the parent-death signal and the marker.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/fd.h"

namespace dt::launcher {

struct GuardPlan {
  std::string mark;  ///< "DT_MARK=...": in the environment of every process that must end.
  std::vector<std::string> files;  ///< Removed at the end; then the folder, if empty.
  std::string log_file;            ///< Removed at the end if it is empty.
  std::string folder;
  int lock_fd = -1;  ///< Held to the very end: no new agent starts while old processes live.
};

/// The agent's handle on its guard. Destroying it lets the guard do its work.
class Guard {
 public:
  Guard(pid_t pid, io::Fd pidfd, io::Fd pipe);
  void group_started(pid_t group);
  void group_ended(pid_t group);
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Readable when the guard is gone. Once; none afterwards.
  [[nodiscard]] io::Fd take_pidfd() { return std::move(pidfd_); }

 private:
  void send(pid_t number);

  pid_t pid_;
  io::Fd pidfd_;
  io::Fd pipe_;
};

/// Forks. The caller returns in the child, in a session of its own; the parent becomes its guard
/// and never returns.
[[nodiscard]] Result<Guard> fork_under_guard(const GuardPlan& plan);

/// Forks a guard as a child, to replace one that is gone.
[[nodiscard]] Result<Guard> fork_new_guard(const GuardPlan& plan);

}  // namespace dt::launcher
