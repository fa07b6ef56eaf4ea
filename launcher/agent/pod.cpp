#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "io/process_tree.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/job_traces.h"
#include "launcher/agent/programs.h"
#include "launcher/agent/signals.h"

namespace dt::launcher {
namespace {

namespace fs = std::filesystem;

constexpr int kLook_ms = 500;
constexpr int kForever_ms = -1;

/// Gives the agents of all jobs a notice, of which only the first one counts; false: there is none.
bool give_notice() {
  const auto jobs = find_job_traces([](const std::string&) { return true; });
  for (const auto& [job, traces] : jobs) {
    std::error_code ec;
    for (const std::string& folder : traces.folders)
      for (fs::directory_iterator at(folder, ec), end; !ec && at != end; at.increment(ec)) {
        AgentFiles files;
        files.socket = at->path().string();
        if (const auto agent = connect_to_agent({files}))
          io::signal_pidfd(peer_of(*agent), SIGUSR1);
      }
  }
  return std::ranges::any_of(jobs, [](const auto& job) { return job.second.has_agent; });
}

}  // namespace

int pod_main() {
  sigset_t set = scheduler_signals();
  sigaddset(&set, SIGCHLD);
  const io::Fd signals = take_signals(set);
  for (bool is_going = false;;) {
    pollfd wait{signals.get(), POLLIN, 0};
    ::poll(&wait, 1, is_going ? kLook_ms : kForever_ms);
    signalfd_siginfo info{};
    while (::read(signals.get(), &info, sizeof info) == sizeof info)
      if (info.ssi_signo != SIGCHLD) is_going = true;
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (is_going && !give_notice()) return 0;
  }
}

}  // namespace dt::launcher
