/// Keeps a guard alive while the agent lives.
#pragma once

#include <set>

#include "io/asio.h"
#include "io/log.h"
#include "launcher/agent/guard.h"

namespace dt::launcher {

class GuardKeeper {
 public:
  GuardKeeper(GuardPlan plan, Guard guard, io::Log& log);

  void group_started(pid_t group);
  void group_ended(pid_t group);
  [[nodiscard]] pid_t pid() const { return guard_.pid(); }
  /// Forks another guard whenever the present one has ended, until cancelled.
  io::awaitable<void> run();

 private:
  GuardPlan plan_;
  Guard guard_;
  io::Log* log_;
  std::set<pid_t> groups_;  ///< That live, for the next guard.
};

}  // namespace dt::launcher
