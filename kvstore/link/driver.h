/// Who runs an event loop. A caller that waits for an answer runs it itself: a small message then
/// passes no thread on its way out and back, and a hand-over costs more than the network. At all
/// other times a thread of our own does, so that what was handed over asynchronously proceeds while
/// the caller computes.
///
/// One thread at a time; handing over synchronises, so handlers need no locks between each other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "io/asio.h"
#include "kvstore/link/busy_poll.h"

namespace dt::kv {

class Driver {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Driver(io::asio::io_context& context) : context_(context) {}
  /// After finish(), or never started.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  void start();
  [[nodiscard]] bool is_started() const { return thread_.joinable(); }
  /// Waits until the loop has nothing left to do.
  void finish();

  /// Runs the loop on this thread until `done` (called between handlers) or the deadline; true:
  /// done. One caller at a time. It polls before it sleeps, with `read`, as BusyPoll does.
  template <class Done, class Read>
  bool run_until(Done done, std::optional<Clock::time_point> deadline, Duration busy_poll,
                 Read read);
  /// Something was posted that nobody is going to wait for now.
  void nudge();

 private:
  /// How long the loop is left to a caller that just went: it often comes back at once.
  static constexpr Duration kLinger = std::chrono::milliseconds(2);

  void run_in_background();
  void take_over();
  void leave();

  io::asio::io_context& context_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_wanted_ = false;  ///< By a caller.
  // Under mutex_:
  bool is_driving_ = false;  ///< Our own thread.
  bool has_caller_ = false;
  bool is_asleep_ = false;  ///< Our own thread waits for the caller to leave.
  bool is_nudged_ = false;
  std::uint64_t callers_ = 0;  ///< So far.
  Clock::time_point left_at_{};
};

template <class Done, class Read>
bool Driver::run_until(Done done, std::optional<Clock::time_point> deadline, Duration busy_poll,
                       Read read) {
  take_over();
  BusyPoll polling(busy_poll);
  bool is_done = false;
  while (!(is_done = done()) && !context_.stopped()) {
    if (deadline && Clock::now() >= *deadline) break;
    if (polling.turn(context_, read)) continue;
    if (deadline)
      context_.run_one_until(*deadline);
    else
      context_.run_one();
    polling.renew();
  }
  leave();
  return is_done;
}

}  // namespace dt::kv
