/// Runs jobs one after the other on a thread of its own: a slow volume delays the reading of a
/// checkpoint, and a loop must not wait for it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace dt::kv {

class Loader {
 public:
  using Job = std::function<void()>;

  Loader();
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Any thread. After stop() no job runs.
  void submit(Job job);
  /// Drops jobs that have not begun and waits for the one that has.
  void stop();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Under mutex_:
  bool is_stopping_ = false;
  std::deque<Job> jobs_;
  std::thread thread_;
};

}  // namespace dt::kv
