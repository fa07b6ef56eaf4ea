#include "kvstore/server/loop_report.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "io/process_state.h"

namespace dt::kv {

void LoopReport::begin_thread(std::uint32_t loop) {
  (void)::pthread_setname_np(::pthread_self(), fmt::format("kv-loop-{}", loop).c_str());
  const auto id = static_cast<pid_t>(::syscall(SYS_gettid));
  std::lock_guard lock(mutex_);
  thread_ = id;
}

void LoopReport::publish(Seen seen) {
  std::lock_guard lock(mutex_);
  for (auto& [worker, now] : seen.workers) {
    const auto before = seen_.workers.find(worker);
    if (before == seen_.workers.end()) continue;
    now.active = now.active || before->second.active;
    now.busy = now.busy || before->second.busy;
  }
  seen.late.add(seen_.late);
  seen_ = std::move(seen);
  asked_.reset();
}

bool LoopReport::is_to_ask(Time now) {
  std::lock_guard lock(mutex_);
  if (asked_) return false;
  asked_ = now;
  return true;
}

LoopReport::Seen LoopReport::take() {
  std::lock_guard lock(mutex_);
  Seen out = seen_;
  for (auto& [worker, seen] : seen_.workers) seen.active = seen.busy = false;
  seen_.late = {};
  return out;
}

Duration LoopReport::stuck_for(Time now) const {
  std::lock_guard lock(mutex_);
  return asked_ ? now - *asked_ : Duration::zero();
}

std::string LoopReport::thread_state() const {
  std::unique_lock lock(mutex_);
  const pid_t id = thread_;
  lock.unlock();
  return id == 0 ? "" : io::kernel_state(fmt::format("/proc/self/task/{}", id), id);
}

}  // namespace dt::kv
