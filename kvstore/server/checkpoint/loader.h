/// Runs jobs one after the other on a thread of its own: reading a checkpoint takes as long as the
/// volume likes, and a loop has other things to do.
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

  /// Any thread. After stop() nothing is done any more.
  void submit(Job job);
  /// Drops what has not begun and waits for the job that has.
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
