#include "kvstore/link/event_loop.h"

#include <pthread.h>

#include <functional>
#include <thread>

#include "core/base/result.h"
#include "io/at_end.h"
#include "kvstore/link/tcp.h"

namespace dt::kv {

EventLoop::~EventLoop() {
  DT_CHECK(!thread_.joinable(), "a loop is finished before it is destroyed");
}

std::optional<EventLoop::Clock::time_point> deadline_after(Duration limit) {
  if (limit <= Duration::zero()) return std::nullopt;
  return EventLoop::Clock::now() + limit;
}

// ---------------------------------------------------------------- turns

io::awaitable<Error> EventLoop::receive(TcpConnection& link, FrameSink& sink) {
  const auto at = readers_.insert(readers_.end(), Reader{&link, &sink});
  const io::AtEnd<std::function<void()>> unregister([this, at] { readers_.erase(at); });
  co_return co_await link.receive(sink);
}

void EventLoop::run() {
  if (busy_poll_ <= Duration::zero()) {
    context_.run();
    return;
  }
  stay_awake();
  while (!context_.stopped()) turn(std::nullopt);
}

void EventLoop::turn(std::optional<Clock::time_point> deadline) {
  if (poll()) return;
  if (deadline)
    context_.run_one_until(*deadline);
  else
    context_.run_one();
  stay_awake();
}

bool EventLoop::poll() {
  if (busy_poll_ <= Duration::zero()) return context_.poll_one() > 0;
  const bool looks = reads_left_ == 0;
  if (looks ? context_.poll_one() > 0 : read()) {
    stay_awake();
    return true;
  }
  reads_left_ = looks ? kReadsPerLook : reads_left_ - 1;
  if (Clock::now() >= sleep_at_) return false;
  std::this_thread::yield();  // the process that answers may need this core
  return true;
}

bool EventLoop::read() {
  bool has_read = false;
  for (const auto& reader : readers_)
    if (reader.link->read_now(*reader.sink)) has_read = true;
  return has_read;
}

void EventLoop::stay_awake() {
  reads_left_ = 0;
  if (busy_poll_ > Duration::zero()) sleep_at_ = Clock::now() + busy_poll_;
}

// ---------------------------------------------------------------- a worker's loop

void EventLoop::start() {
  closed_in_child_.emplace(context_);
  thread_ = std::thread([this] { run_in_background(); });
  ::pthread_setname_np(thread_.native_handle(), "dtkv-loop");
}

void EventLoop::finish() {
  if (!thread_.joinable()) return;
  nudge();
  thread_.join();
}

void EventLoop::run_in_background() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::uint64_t seen = 0;
    while (has_caller_ || (!is_nudged_ && Clock::now() < left_at_ + kLinger)) {
      // Timed waits save callers that come and go the system call that wakes this thread. During a
      // long call this thread sleeps until the caller leaves.
      is_asleep_ = has_caller_ && seen == callers_;
      seen = callers_;
      if (is_asleep_)
        changed_.wait(lock);
      else
        changed_.wait_for(lock, kLinger);
      is_asleep_ = false;
    }
    is_nudged_ = false;
    is_driving_ = true;
    lock.unlock();
    bool is_over = false;
    while (!is_wanted_ && !is_over) is_over = context_.run_one() == 0;
    lock.lock();
    is_driving_ = false;
    changed_.notify_all();
    if (is_over) return;
  }
}

void EventLoop::take_over() {
  std::unique_lock lock(mutex_);
  DT_CHECK(!has_caller_, "a store is used from one thread at a time");
  has_caller_ = true;
  came_at_ = Clock::now();
  ++callers_;
  if (is_driving_) {
    is_wanted_ = true;
    post([] {});
    changed_.wait(lock, [this] { return !is_driving_; });
    is_wanted_ = false;
  }
  stay_awake();
}

void EventLoop::leave() {
  std::lock_guard lock(mutex_);
  has_caller_ = false;
  left_at_ = Clock::now();
  waited_ += left_at_ - came_at_;
  if (is_asleep_) changed_.notify_all();
}

Duration EventLoop::waited() {
  std::lock_guard lock(mutex_);
  return has_caller_ ? waited_ + (Clock::now() - came_at_) : waited_;
}

void EventLoop::nudge() {
  std::lock_guard lock(mutex_);
  is_nudged_ = true;
  if (!is_driving_) changed_.notify_all();
}

}  // namespace dt::kv
