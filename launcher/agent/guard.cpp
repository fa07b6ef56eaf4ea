#include "launcher/agent/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <csignal>

#include "io/process_end.h"
#include "io/process_tree.h"

namespace dt::launcher {
namespace {

constexpr auto kGuardRetry = std::chrono::seconds(1);
constexpr int kPipeFd = 0;
constexpr int kLockFd = 1;

enum class GuardKind {
  kFirst,  ///< The agent's parent.
  kLater,  ///< Its child, in place of one that is gone.
};

void ignore_signals() {
  for (int number = 1; number < NSIG; ++number)
    if (number != SIGCHLD) ::signal(number, SIG_IGN);  // KILL and STOP refuse
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

void keep_pipe_and_lock(int pipe) {
  ::dup2(pipe, kPipeFd);
  ::dup2(kDaemonLockFd, kLockFd);
  ::syscall(SYS_close_range, 2U, ~0U, 0U);
}

/// The living groups when the agent's end of the pipe closes. Numbers: +group started, -group
/// ended.
std::set<pid_t> follow_groups() {
  std::set<pid_t> groups;
  pid_t numbers[1024];
  for (;;) {
    const ssize_t n = ::read(kPipeFd, numbers, sizeof numbers);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return groups;
    for (std::size_t i = 0; i < static_cast<std::size_t>(n) / sizeof(pid_t); ++i) {
      if (numbers[i] > 0)
        groups.insert(numbers[i]);
      else
        groups.erase(-numbers[i]);
    }
  }
}

/// Reaps the children that have ended; true if others live.
bool reap_children() {
  for (;;) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) return true;
    if (pid < 0 && errno != EINTR) return false;
  }
}

/// Also waits for a process that the kernel cannot end (a stalled volume): no later process of the
/// job may run at the same time.
///
/// Everything is below the first guard, as long as that lives; below a later one nothing is, and it
/// looks for `mark` on all processes of the machine.
void end_everything(const std::set<pid_t>& groups, GuardKind kind, const std::string& mark) {
  for (int pass = 0;; ++pass) {
    // Only at first: later on, a group's number may have been reused.
    if (pass < 2)
      for (const pid_t group : groups) ::kill(-group, SIGKILL);
    auto left = io::descendants(::getpid());
    if (kind == GuardKind::kLater)
      for (auto& process : io::marked_processes(mark)) left.push_back(std::move(process));
    for (const auto& process : left) io::signal_pidfd(process, SIGKILL);
    if (!reap_children() && left.empty()) return;
    ::poll(nullptr, 0, std::min(2 + pass * 2, 200));
  }
}

[[noreturn]] void be_guard(int pipe, GuardKind kind, const AgentFiles& files,
                           const std::string& mark) {
  ignore_signals();
  keep_pipe_and_lock(pipe);
  ::prctl(PR_SET_NAME, "dtagent-guard");
  end_everything(follow_groups(), kind, mark);
  struct stat st {};
  if (::stat(files.log.c_str(), &st) == 0 && st.st_size == 0) ::unlink(files.log.c_str());
  ::unlink(files.socket.c_str());
  ::unlink(files.lock.c_str());
  ::rmdir(files.folder.c_str());  // if it is empty
  ::_exit(0);
}

/// Writing never blocks.
Result<io::Pipe> make_guard_pipe() {
  auto pipe = io::make_pipe();
  if (pipe) ::fcntl(pipe->write.get(), F_SETFL, O_NONBLOCK);
  return pipe;
}

/// Forks a guard as a child, to replace one that is gone.
Result<Guard> fork_new_guard(const AgentFiles& files, const std::string& mark) {
  auto pipe = make_guard_pipe();
  if (!pipe) return tl::unexpected(pipe.error());
  const pid_t pid = ::fork();
  if (pid < 0) return tl::unexpected(errno_error(errno, "start the guard (fork)"));
  if (pid == 0) {
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    be_guard(pipe->read.get(), GuardKind::kLater, files, mark);
  }
  io::Fd pidfd = io::open_pidfd(pid);
  if (pidfd) return Guard{pid, std::move(pidfd), std::move(pipe->write)};
  const int number = errno;
  // Before its pipe closes, which would make it end everything.
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return tl::unexpected(errno_error(number, "watch the guard (pidfd_open)"));
}

}  // namespace

Result<Guard> fork_under_guard(const AgentFiles& files, const std::string& mark) {
  auto pipe = make_guard_pipe();
  if (!pipe) return tl::unexpected(pipe.error());
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t guard = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return tl::unexpected(errno_error(errno, "start the agent (fork)"));
  if (pid > 0) be_guard(pipe->read.get(), GuardKind::kFirst, files, mark);
  ::setsid();
  io::Fd pidfd = io::open_pidfd(guard);
  if (!pidfd) return tl::unexpected(errno_error(errno, "watch the guard (pidfd_open)"));
  return Guard{guard, std::move(pidfd), std::move(pipe->write)};
}

void GuardKeeper::group_started(pid_t group) {
  groups_.insert(group);
  send(group);
}

void GuardKeeper::group_ended(pid_t group) {
  groups_.erase(group);
  send(-group);
}

void GuardKeeper::send(pid_t number) {
  // Whole or not at all; the guard that replaces a lost one gets all living groups.
  [[maybe_unused]] const ssize_t n = ::write(guard_.pipe.get(), &number, sizeof number);
}

io::awaitable<void> GuardKeeper::run() {
  using Descriptor = io::asio::posix::stream_descriptor;
  for (;;) {
    Descriptor ended(co_await io::asio::this_coro::executor, guard_.pidfd.release());
    const bool has_ended = co_await io::process_ended(ended);
    if (!has_ended) co_return;
    ::waitpid(guard_.pid, nullptr, WNOHANG);  // a replacement was our child
    auto guard = fork_new_guard(files_, mark_);
    if (!guard) log_->error("no guard, trying again: {}", guard.error().message);
    while (!guard) {
      co_await io::sleep_for(kGuardRetry);
      guard = fork_new_guard(files_, mark_);
    }
    guard_ = std::move(*guard);
    for (const pid_t group : groups_) send(group);
    log_->warn("the guard was gone; process {} guards now", guard_.pid);
  }
}

}  // namespace dt::launcher
