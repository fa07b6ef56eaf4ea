#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>

#include "io/descriptor_limit.h"
#include "io/process_tree.h"
#include "io/stop_signals.h"
#include "launcher/agent/agent.h"

namespace dt::launcher {
namespace {

/// No descriptor of the caller stays open, least of all an ssh channel's pipes.
void leave_the_caller() {
  ::syscall(SYS_close_range, static_cast<unsigned>(kDaemonLockFd) + 1, ~0U, 0U);
  if (::chdir("/") != 0) ::_exit(1);
  ::fcntl(kDaemonLockFd, F_SETFD, FD_CLOEXEC);
  io::ignore_hangup();
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "dtagent");  // it was run as /proc/self/exe
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  DT_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number, "no random numbers");
  return number;
}

Result<void> start_and_run(const AgentOptions& options, io::Log& log) {
  auto files = agent_files(options.job, options.host);
  if (!files) return tl::unexpected(files.error());
  leave_the_caller();
  const std::uint64_t incarnation = random_number();
  const std::string marks = io::mark_of(options.job, options.host);
  ProcessDefaults defaults;
  defaults.host = options.host;
  defaults.socket = files->socket;
  defaults.folder = files->folder;
  defaults.mark = marks + fmt::format("{:016x}", incarnation);
  defaults.umask = ::umask(077);
  defaults.descriptor_limit = io::raise_descriptor_limit();
  auto guard = fork_under_guard(*files, defaults.mark);
  if (!guard) return tl::unexpected(guard.error());
  // What an agent and its guard left when both were killed. While this process holds the lock, no
  // other agent has processes of this job here.
  if (const std::size_t left = options.is_first ? 0 : io::kill_marked(marks, io::kKillDeadline))
    log.warn("{} processes of an earlier agent cannot be killed", left);
  // Orphans become children of the agent while it lives, then of the guard.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  return run_agent(options, *files, defaults, std::move(*guard), incarnation);
}

}  // namespace

int agent_main(const AgentOptions& options) {
  io::FdLog log(STDERR_FILENO);
  const auto done = start_and_run(options, log);
  if (!done) log.error("{}", done.error().message);
  return done ? 0 : 1;
}

}  // namespace dt::launcher
