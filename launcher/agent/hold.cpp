#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>

#include "io/process_tree.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/programs.h"
#include "launcher/agent/signals.h"

namespace dt::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Between looks for an agent, and for the end of a guard whose agent has ended.
constexpr auto kAgentLook = 250ms;
constexpr auto kForever = -1ms;

/// The next signal, 0: `process` has ended or time is up.
int next_signal(const io::Fd& signals, const io::Fd& process, std::chrono::milliseconds limit) {
  pollfd waits[] = {{signals.get(), POLLIN, 0}, {process ? process.get() : -1, POLLIN, 0}};
  ::poll(waits, std::size(waits), static_cast<int>(limit.count()));
  signalfd_siginfo info{};
  if (::read(signals.get(), &info, sizeof info) != sizeof info) return 0;
  return static_cast<int>(info.ssi_signo);
}

bool has_ended(const io::Fd& process) {
  pollfd wait{process.get(), POLLIN, 0};
  return ::poll(&wait, 1, 0) > 0;
}

/// The agent's process; none: no agent answers.
io::Fd find_agent(const std::vector<AgentFiles>& all) {
  const auto socket = connect_to_agent(all);
  return socket ? peer_of(*socket) : io::Fd();
}

}  // namespace

int hold_main(const AgentOptions& options) {
  const auto own = agent_files(options.job, options.host);
  if (!own) {
    fmt::print(stderr, "dtagent: {}\n", own.error().message);
    return 1;
  }
  const auto all = agent_files_anywhere(options.job, options.host, *own, "");
  const io::Fd signals = take_signals(scheduler_signals());
  const auto deadline = Clock::now() + options.lonely_timeout;
  bool had_agent = false;
  for (;;) {
    if (const io::Fd agent = find_agent(all)) {
      had_agent = true;
      // As USR1 whatever it was: a second TERM, which the agent may have from its own bridge, is an
      // order to stop.
      while (!has_ended(agent))
        if (next_signal(signals, agent, kForever) != 0) io::signal_pidfd(agent, SIGUSR1);
    }
    if (had_agent && !is_any_held(all)) return 0;
    if (!had_agent && Clock::now() > deadline) {
      fmt::print(stderr, "dtagent: no agent of job {} came to {} within {:.0f} s\n", options.job,
                 options.host, seconds(options.lonely_timeout));
      return 1;
    }
    const int signal = next_signal(signals, {}, kAgentLook);
    if (!had_agent && (signal == SIGTERM || signal == SIGINT)) return 0;
  }
}

}  // namespace dt::launcher
