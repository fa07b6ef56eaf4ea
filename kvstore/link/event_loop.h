/// An event loop of the data plane with its tasks and the connections that it reads.
///
/// A server's loop has a thread, which is in run(). A worker's loop is run by the caller that waits
/// for an answer: a switch of threads costs more than the network, and a small message then needs
/// none. At all other times the loop's own thread runs it, so that asynchronous operations proceed
/// while the caller computes.
///
/// One thread at a time; taking over the loop synchronises, so handlers need no locks between each
/// other.
///
/// With a busy poll, a thread that waits polls before it sleeps: no wake-up delays a message, and
/// one read of the socket replaces three system calls of the reactor.
#pragma once

#include <atomic>
#include <boost/asio/post.hpp>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "io/asio.h"
#include "io/task_group.h"
#include "kvstore/link/forks.h"

namespace dt::kv {

class FrameSink;
class TcpConnection;

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;

  /// `busy_poll`: how long the thread polls without an event before it sleeps; zero: it never
  /// polls.
  explicit EventLoop(Duration busy_poll) : busy_poll_(busy_poll) {}
  /// Only after finish(), or if it was never started.
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // ---- any thread
  [[nodiscard]] io::asio::io_context& context() { return context_; }
  template <class Work>
  void post(Work work) {
    io::asio::post(context_, std::move(work));
  }

  // ---- the loop
  void spawn(io::awaitable<void> task) { tasks_.spawn(std::move(task)); }
  [[nodiscard]] io::TaskGroup& tasks() { return tasks_; }
  /// TcpConnection::receive() of a connection that is read while the loop polls as well.
  io::awaitable<Error> receive(TcpConnection& link, FrameSink& sink);

  // ---- a server's thread
  /// Returns when no task is left.
  void run();

  // ---- a worker's caller
  void start();
  [[nodiscard]] bool is_started() const { return thread_.joinable(); }
  /// Waits until the loop has no task left.
  void finish();
  /// Runs the loop on this thread until `done` (called between handlers) or the deadline; true:
  /// done. One caller at a time.
  template <class Done>
  bool run_until(Done done, std::optional<Clock::time_point> deadline);
  /// How long callers have been in run_until(), the present one included. Any thread.
  [[nodiscard]] Duration waited();
  /// Wakes the loop's own thread for posted work that no caller waits for now.
  void nudge();

 private:
  struct Reader {
    TcpConnection* link;
    FrameSink* sink;
  };
  /// How long the loop stays idle after a caller has left it: a caller often comes back at once.
  static constexpr Duration kLinger = std::chrono::milliseconds(2);
  static constexpr unsigned kReadsPerLook = 32;

  void run_in_background();
  void take_over();
  void leave();

  /// Runs a handler or a read; sleeps, at most until the deadline, if there was no event for long.
  void turn(std::optional<Clock::time_point> deadline);
  /// A turn without sleep; false: it is time to sleep.
  bool poll();
  /// Reads from the connections; true: there were bytes.
  bool read();
  /// After an event: the time until sleep begins again.
  void stay_awake();

  const Duration busy_poll_;
  // Used by the thread that runs the loop:
  std::list<Reader> readers_;  ///< Declared before tasks_, whose tasks erase their entries.
  Clock::time_point sleep_at_{};
  unsigned reads_left_ = 0;  ///< Until the loop's handlers run.
  io::asio::io_context context_{1};
  io::TaskGroup tasks_{context_.get_executor()};
  std::optional<ContextClosedInChild> closed_in_child_;  ///< A worker's: its program may fork.

  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_wanted_ = false;  ///< By a caller.
  // Under mutex_:
  bool is_driving_ = false;  ///< The loop's own thread runs it.
  bool has_caller_ = false;
  bool is_asleep_ = false;  ///< The loop's own thread waits for the caller to leave.
  bool is_nudged_ = false;
  std::uint64_t callers_ = 0;  ///< Calls of run_until() so far.
  Clock::time_point came_at_{};
  Clock::time_point left_at_{};
  Clock::duration waited_{};  ///< By callers that have left.
};

/// `limit` from now; none for 0, which means no limit.
[[nodiscard]] std::optional<EventLoop::Clock::time_point> deadline_after(Duration limit);

template <class Done>
bool EventLoop::run_until(Done done, std::optional<Clock::time_point> deadline) {
  take_over();
  bool is_done = false;
  while (!(is_done = done()) && !context_.stopped()) {
    if (deadline && Clock::now() >= *deadline) break;
    turn(deadline);
  }
  leave();
  return is_done;
}

}  // namespace dt::kv
