#include "launcher/agent/stay.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>
#include <thread>

#include "io/process_tree.h"
#include "launcher/agent/carry.h"

namespace dt::launcher {
namespace {

/// For the agent's last words, where nobody may read them any more.
constexpr auto kLastWords = std::chrono::seconds(1);

/// What a scheduler sends to a command before it ends it; USR1, USR2 and XCPU are warnings, of
/// which nothing is made.
constexpr int kFromScheduler[] = {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU};

/// The process at the other end of a unix socket that was connected to.
io::Fd peer_of(const io::Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return {};
  return open_pidfd(peer.pid);
}

/// The scheduler wants this command to end.
void hand_over(const io::Fd& agent, int signal) {
  if (signal == SIGTERM || signal == SIGINT) signal_pidfd(agent, SIGTERM);
}

sigset_t scheduler_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kFromScheduler) sigaddset(&set, number);
  return set;
}

/// Blocks until no process holds the lock.
void wait_for_lock(const std::string& lock) {
  const io::Fd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  while (fd && ::flock(fd.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
}

}  // namespace

void stay_with_agent(io::Fd agent, const std::string& lock, bool lines) {
  const sigset_t signals = scheduler_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before there are other threads
  std::thread([signals, process = peer_of(agent)] {
    for (int signal = 0;;)
      if (::sigwait(&signals, &signal) == 0) hand_over(process, signal);
  }).detach();
  const int fd = agent.get();
  std::thread([fd, lines] {
    carry_in(fd, lines);
    ::shutdown(fd, SHUT_RDWR);  // the supervisor's link is over, the agent's life is not
  }).detach();
  std::promise<void> carried;
  const std::future<void> has_carried = carried.get_future();
  std::thread([fd, lines, promise = std::move(carried)]() mutable {
    carry_out(fd, lines);
    promise.set_value();
  }).detach();
  wait_for_lock(lock);
  has_carried.wait_for(kLastWords);
  ::_exit(0);  // the threads may be blocked for ever
}

}  // namespace dt::launcher
