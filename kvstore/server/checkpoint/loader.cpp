#include "kvstore/server/checkpoint/loader.h"

#include <utility>

namespace dt::kv {

Loader::Loader() : thread_([this] { run(); }) {}

Loader::~Loader() { stop(); }

void Loader::submit(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    jobs_.push_back(std::move(job));
  }
  wake_.notify_one();
}

void Loader::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    jobs_.clear();
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Loader::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return is_stopping_ || !jobs_.empty(); });
    if (is_stopping_) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace dt::kv
