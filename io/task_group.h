/// A set of coroutines with one stop: nothing is ever detached.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <functional>
#include <list>

#include "io/asio.h"

namespace dt::io {

/// Lives on one thread's executor. Must be idle (joined) when destroyed.
class TaskGroup {
 public:
  explicit TaskGroup(asio::any_io_executor executor);
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  /// Starts a task. An exception that leaves it is kept for join(), and stops the group.
  void spawn(awaitable<void> task);
  /// Cancels every task now running; they end at their next wait.
  void cancel();
  /// Waits until no task is left; rethrows the first exception that left one.
  awaitable<void> join();
  [[nodiscard]] bool idle() const { return signals_.empty(); }

 private:
  asio::any_io_executor executor_;
  std::list<asio::cancellation_signal> signals_;
  asio::steady_timer idle_;
  std::exception_ptr first_error_;
};

}  // namespace dt::io
