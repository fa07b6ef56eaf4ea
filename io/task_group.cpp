#include "io/task_group.h"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/system/system_error.hpp>
#include <vector>

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
    : executor_(std::move(executor)), idle_(executor_, asio::steady_timer::time_point::max()) {}

TaskGroup::~TaskGroup() {
  DT_CHECK(signals_.empty(), "a task group was destroyed with live tasks");
}

void TaskGroup::spawn(awaitable<void> task) {
  auto signal = signals_.emplace(signals_.end());
  auto done = [this, signal](std::exception_ptr error) {
    signals_.erase(signal);
    if (error && !first_error_ && !was_cancelled(error)) {
      first_error_ = error;
      cancel();
    }
    if (signals_.empty()) idle_.cancel();
  };
  asio::co_spawn(executor_, std::move(task),
                 asio::bind_cancellation_slot(signal->slot(), std::move(done)));
}

void TaskGroup::cancel() {
  // A task may end, and so leave the list, inside emit: go over a copy of the addresses.
  std::vector<asio::cancellation_signal*> all;
  for (auto& s : signals_) all.push_back(&s);
  for (auto* s : all) {
    for (auto& live : signals_) {
      if (&live == s) {
        s->emit(asio::cancellation_type::terminal);
        break;
      }
    }
  }
}

awaitable<void> TaskGroup::join() {
  while (!signals_.empty()) co_await idle_.async_wait(tok);
  if (first_error_) std::rethrow_exception(first_error_);
}

}  // namespace dt::io
