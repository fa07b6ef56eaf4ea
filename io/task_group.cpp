#include "io/task_group.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

namespace dt::io {

namespace {

/// A cancelled coroutine throws operation_aborted from its next wait: that is how it ends.
bool was_cancelled(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& e) {
    return e.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

}  // namespace

TaskGroup::TaskGroup(asio::any_io_executor executor)
    : executor_(std::move(executor)), idle_(executor_, kNever) {}

TaskGroup::~TaskGroup() { DT_CHECK(tasks_.empty(), "a task group was destroyed with live tasks"); }

/// Asio (1.26) loses the completion of a coroutine that is cancelled before its first step, or that
/// ends cancelled without ever having waited: its entry point throws again, uncaught. So a task
/// is cancelled only once it has begun, and throwing is switched off at its end.
awaitable<void> TaskGroup::run(Task* self, awaitable<void> task) {
  self->is_started = true;
  std::exception_ptr error;
  try {
    if (!self->is_cancelled) co_await std::move(task);
  } catch (...) {
    error = std::current_exception();
  }
  co_await asio::this_coro::throw_if_cancelled(false);
  if (error) std::rethrow_exception(error);
}

void TaskGroup::spawn(awaitable<void> task) {
  const auto self = tasks_.insert(tasks_.end(), std::make_shared<Task>());
  auto done = [this, self](std::exception_ptr error) {
    // A cancel() from outside the event loop is still queued there, with the signal's address: the
    // signal must live until after it.
    asio::post(executor_, [ended = *self] {});
    tasks_.erase(self);
    if (error && !first_error_ && !was_cancelled(error)) {
      first_error_ = error;
      cancel();
    }
    if (tasks_.empty()) idle_.cancel();
  };
  asio::co_spawn(executor_, run(self->get(), std::move(task)),
                 asio::bind_cancellation_slot((*self)->signal.slot(), std::move(done)));
}

void TaskGroup::cancel() {
  // A task may end, and so leave the list, inside emit: go over a copy.
  const auto all = tasks_;
  for (const auto& task : all) {
    task->is_cancelled = true;
    if (task->is_started) task->signal.emit(asio::cancellation_type::terminal);
  }
}

awaitable<void> TaskGroup::join() {
  while (!tasks_.empty()) co_await idle_.async_wait(tok);
  if (first_error_) std::rethrow_exception(first_error_);
}

}  // namespace dt::io
