/// A set of coroutines that are cancelled and joined together: none is ever detached.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <exception>
#include <list>
#include <memory>

#include "io/asio.h"

namespace dt::io {

/// Lives on one thread's executor. Must be idle (joined) when destroyed.
class TaskGroup {
 public:
  explicit TaskGroup(asio::any_io_executor executor);
  ~TaskGroup();
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  /// Starts a task, not before the caller has returned to the executor; cancelled before that, it
  /// never runs. An exception that leaves it is kept for join(), and stops the group.
  void spawn(awaitable<void> task);
  /// Cancels every task now running; they end at their next wait. A task may cancel its own group.
  void cancel();
  /// Waits until no task is left; rethrows the first exception that left one.
  awaitable<void> join();
  [[nodiscard]] bool idle() const { return tasks_.empty(); }

 private:
  struct Task {
    asio::cancellation_signal signal;
    bool is_started = false;
    bool is_cancelled = false;
  };
  static awaitable<void> run(Task* self, awaitable<void> task);

  asio::any_io_executor executor_;
  std::list<std::shared_ptr<Task>> tasks_;
  asio::steady_timer idle_;
  std::exception_ptr first_error_;
};

}  // namespace dt::io
