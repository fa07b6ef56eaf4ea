/// Writes the state that a server's loops saved, on a thread of its own, one checkpoint at a time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "kvstore/server/checkpoint/saved.h"

namespace dt::kv {

class SavedWriter {
 public:
  struct Task {
    SavedBy by;
    std::string folder;  ///< Created if it does not exist.
    std::vector<SavedLoop> loops;
  };
  /// Called on the writer's thread; release the loops' references on the threads that took them.
  using Done = std::function<void(Task task, Result<WrittenFile> written)>;

  explicit SavedWriter(Done done);
  /// Cancels the checkpoint that is being written; blocks while a call hangs on the volume.
  ~SavedWriter();
  SavedWriter(const SavedWriter&) = delete;
  SavedWriter& operator=(const SavedWriter&) = delete;

  /// True: the caller alone may submit() a task or cancel().
  [[nodiscard]] bool try_begin() { return !busy_.exchange(true); }
  void submit(Task task);
  void cancel() { busy_ = false; }

 private:
  void run();

  Done done_;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Task> task_;  ///< Under mutex_.
  std::thread thread_;
};

}  // namespace dt::kv
