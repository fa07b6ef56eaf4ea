/// Writes what a server's loops saved, on a thread of its own, one checkpoint at a time.
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
    std::string folder;  ///< Made if it is not there.
    std::vector<SavedLoop> loops;
  };
  /// On the writer's thread; the loops' references are to be let go where they were taken.
  using Done = std::function<void(Task task, Result<WrittenFile> written)>;

  explicit SavedWriter(Done done);
  /// Gives up what is being written; a volume that hangs in a call holds it.
  ~SavedWriter();
  SavedWriter(const SavedWriter&) = delete;
  SavedWriter& operator=(const SavedWriter&) = delete;

  /// True: the caller, and nobody else, may submit() a task or cancel().
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
