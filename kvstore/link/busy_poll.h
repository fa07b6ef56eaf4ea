/// An event loop that is polled instead of slept in: no wake-up on a message's way, and one read of
/// the socket instead of three system calls of the reactor's. For `--busy-poll`.
#pragma once

#include <chrono>
#include <thread>

#include "core/base/time.h"
#include "io/asio.h"

namespace dt::kv {

/// One thread.
class BusyPoll {
 public:
  using Clock = std::chrono::steady_clock;

  /// `patience`: how long nothing may happen before the thread is to sleep; zero: never polls.
  explicit BusyPoll(Duration patience) : patience_(patience) { renew(); }

  /// Something happened.
  void renew() {
    looks_at_ = 0;
    if (patience_ > Duration::zero()) sleep_at_ = Clock::now() + patience_;
  }

  /// A turn: `read` (true: bytes came) looks at the connections, every so often the loop's handlers
  /// run. False: the thread is to sleep in the loop, and to renew() then.
  template <class Read>
  bool turn(io::asio::io_context& context, Read read) {
    if (patience_ <= Duration::zero()) return context.poll_one() > 0;
    const bool looks = looks_at_ == 0;
    if (looks ? context.poll_one() > 0 : read()) {
      renew();
      return true;
    }
    looks_at_ = looks ? kReadsPerLook : looks_at_ - 1;
    if (Clock::now() >= sleep_at_) return false;
    std::this_thread::yield();  // whoever is to answer may need this core
    return true;
  }

 private:
  static constexpr unsigned kReadsPerLook = 32;

  Duration patience_;
  Clock::time_point sleep_at_{};
  unsigned looks_at_ = 0;  ///< Turns until the loop's handlers run.
};

}  // namespace dt::kv
