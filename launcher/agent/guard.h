/// The guard: a second, tiny process that outlives the agent just long enough to end everything the
/// agent started. It holds the read end of a pipe whose only write end is the agent's; when the
/// pipe closes, it kills every process group named on it and all its own descendants until none is
/// left. Then it removes the agent's files.
///
/// The first guard is the agent's parent and adopts orphans (PR_SET_CHILD_SUBREAPER), so whatever
/// the agent started stays among its descendants, even with a session and an environment of its
/// own: "no child left" is then certain. A guard made later is the agent's child and relies on
/// groups, the parent-death signal and the marker: it kills every process that carries the job's.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/fd.h"
#include "io/log.h"
#include "launcher/agent/agent_files.h"

namespace dt::launcher {

/// A guard's process. Destroying this lets the guard do its work.
struct Guard {
  pid_t pid = 0;
  io::Fd pidfd;  ///< Readable when the guard is gone.
  io::Fd pipe;
};

/// Forks. The caller returns in the child, in a session of its own; the parent becomes its guard
/// and never returns. `mark`, "DT_MARK=...", is in the environment of every process that must end.
/// The guard holds kDaemonLockFd to the very end: no new agent starts while old processes live.
[[nodiscard]] Result<Guard> fork_under_guard(const AgentFiles& files, const std::string& mark);

/// Keeps a guard alive while the agent lives.
class GuardKeeper {
 public:
  GuardKeeper(AgentFiles files, std::string mark, Guard guard, io::Log& log)
      : files_(std::move(files)), mark_(std::move(mark)), guard_(std::move(guard)), log_(&log) {}

  void group_started(pid_t group);
  void group_ended(pid_t group);
  [[nodiscard]] pid_t pid() const { return guard_.pid; }
  /// Forks another guard, as a child, whenever the present one has ended, until cancelled.
  io::awaitable<void> run();

 private:
  void send(pid_t number);

  AgentFiles files_;
  std::string mark_;
  Guard guard_;
  io::Log* log_;
  std::set<pid_t> groups_;  ///< That live, for the next guard.
};

}  // namespace dt::launcher
