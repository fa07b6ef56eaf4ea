/// Writes the state that a server's loops saved, on a thread of its own, one checkpoint at a time.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/asio.h"
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

  explicit SavedWriter(Done done) : done_(std::move(done)) {}
  ~SavedWriter() { stop(); }
  SavedWriter(const SavedWriter&) = delete;
  SavedWriter& operator=(const SavedWriter&) = delete;

  /// True: the caller alone may submit() a task or cancel().
  [[nodiscard]] bool try_begin() { return !busy_.exchange(true); }
  void submit(Task task);
  void cancel() { busy_ = false; }
  /// Cancels the checkpoint that is being written, and all later ones; blocks while a call hangs on
  /// the volume.
  void stop();

 private:
  Done done_;
  std::atomic<bool> busy_ = false;
  std::atomic<bool> stopping_ = false;
  io::asio::thread_pool thread_{1};
};

}  // namespace dt::kv
