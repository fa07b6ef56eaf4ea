#include "kvstore/link/driver.h"

#include <boost/asio/post.hpp>

#include "core/base/result.h"

namespace dt::kv {

Driver::~Driver() { DT_CHECK(!thread_.joinable(), "a driver is finished before it is destroyed"); }

void Driver::start() {
  thread_ = std::thread([this] { run_in_background(); });
}

void Driver::finish() {
  if (!thread_.joinable()) return;
  nudge();
  thread_.join();
}

void Driver::run_in_background() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::uint64_t seen = 0;
    while (has_caller_ || (!is_nudged_ && Clock::now() < left_at_ + kLinger)) {
      // Looking again and again spares a caller that comes and goes a system call to wake us; one
      // that stays is waited for.
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

void Driver::take_over() {
  std::unique_lock lock(mutex_);
  DT_CHECK(!has_caller_, "a store is used from one thread at a time");
  has_caller_ = true;
  ++callers_;
  if (!is_driving_) return;
  is_wanted_ = true;
  io::asio::post(context_, [] {});
  changed_.wait(lock, [this] { return !is_driving_; });
  is_wanted_ = false;
}

void Driver::leave() {
  std::lock_guard lock(mutex_);
  has_caller_ = false;
  left_at_ = Clock::now();
  if (is_asleep_) changed_.notify_all();
}

void Driver::nudge() {
  std::lock_guard lock(mutex_);
  is_nudged_ = true;
  if (!is_driving_) changed_.notify_all();
}

}  // namespace dt::kv
