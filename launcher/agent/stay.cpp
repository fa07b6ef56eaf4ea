#include "launcher/agent/stay.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <future>
#include <thread>

#include "launcher/agent/carry.h"
#include "launcher/agent/signals.h"

namespace dt::launcher {
namespace {

/// For the agent's last words, where nobody may read them any more.
constexpr auto kLastWords = std::chrono::seconds(1);

/// Blocks until no process holds the lock.
void wait_for_lock(const std::string& lock) {
  const io::Fd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  while (fd && ::flock(fd.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
}

}  // namespace

void stay_with_agent(io::Fd agent, const std::string& lock, bool lines, bool takes_notices) {
  hand_signals_on(agent, takes_notices);
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
