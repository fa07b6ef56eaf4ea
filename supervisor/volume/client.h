/// All access to the shared volume: one helper process, requests in order, and deadlines on our
/// side. A volume that stalls delays only access to its files.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/task_group.h"
#include "supervisor/volume/protocol.h"

namespace dt::supervisor {

/// One thread. run() must be running for anything to happen; every call waits until the volume
/// answered, its deadline passed (kTimeout, "the shared volume does not answer: <path>"; it may
/// still be done later unless it was not begun) or stop() (kClosed). Other errors: kIo, kDenied
/// (permission, read-only), kUnavailable (the helper died and a repetition might do it twice).
class VolumeClient {
 public:
  struct Options {
    std::vector<std::string> helper;  ///< Program and arguments; socket on stdin, hints on stdout.
    Duration deadline = std::chrono::seconds(10);
    std::size_t queue_limit = std::size_t{8} << 20;  ///< Bytes of droppable appends kept.
  };

  VolumeClient(io::asio::any_io_executor executor, Options options);
  ~VolumeClient();
  VolumeClient(const VolumeClient&) = delete;
  VolumeClient& operator=(const VolumeClient&) = delete;

  /// Works through the queue until stop(). A dead helper is started again and the queue resumes.
  io::awaitable<void> run();
  void stop();
  [[nodiscard]] const io::asio::any_io_executor& executor() const { return executor_; }
  [[nodiscard]] Duration deadline() const { return options_.deadline; }
  /// For calls from here on.
  void set_deadline(Duration deadline) { options_.deadline = deadline; }

  /// The file's content, nullopt if it does not exist; more than `most` bytes is an error.
  io::awaitable<Result<std::optional<std::string>>> read(std::string path,
                                                         std::size_t most = std::size_t{1} << 20);
  io::awaitable<Result<bool>> exists(std::string path);
  /// False if it exists already. Synced.
  io::awaitable<Result<bool>> write_new(std::string path, std::string bytes,
                                        std::uint32_t mode = 0666);
  /// Whole new content or the old one, never a part. Synced.
  io::awaitable<Result<void>> replace(std::string path, std::string bytes,
                                      std::uint32_t mode = 0666);
  /// With `at` the file must have that size, or a part of `bytes` behind it (an interrupted earlier
  /// try), so that repeating is harmless.
  io::awaitable<Result<void>> append(std::string path, std::string bytes,
                                     std::uint64_t at = kAnySize, bool sync = false);
  io::awaitable<Result<void>> truncate(std::string path, std::uint64_t size);
  io::awaitable<Result<void>> make_dirs(std::string path);
  io::awaitable<Result<void>> rename(std::string from, std::string to);
  /// Makes `path` a symbolic link to `target`, replacing any file; false if the volume has no
  /// links.
  io::awaitable<Result<bool>> link(std::string path, std::string target);
  io::awaitable<Result<void>> remove(std::string path);
  io::awaitable<Result<std::vector<std::string>>> list(std::string path);

  /// Free bytes for this user on the folder's file system.
  io::awaitable<Result<std::uint64_t>> room(std::string folder);

  /// Fire and forget, in order, however long the volume stalls. Over the queue limit the oldest is
  /// dropped, and a line in the file reports how much. An error goes to on_append_error. With a
  /// `limit` the file and its older part, io::kOlder, have at most about so many bytes.
  void queue_append(std::string path, std::string bytes, std::uint64_t limit = 0);

  /// Calls on_hint when this file of this folder changes, best effort (other clients' changes are
  /// not seen), also after a helper's restart. One watch at most.
  void watch(std::string folder, std::string name);

  std::function<void()> on_hint;
  std::function<void(const std::string& path, const Error&)> on_append_error;

  /// How long the current request has been waiting for the volume; 0 without one.
  [[nodiscard]] Duration stalled_for() const;
  [[nodiscard]] std::uint64_t dropped_bytes() const { return dropped_bytes_; }
  /// Waits until all requests queued so far are done, at most `limit`; false if they are not.
  io::awaitable<bool> drain(Duration limit);
  /// The current helper's pid; -1 if none runs. For tests.
  [[nodiscard]] int helper_pid() const;

 private:
  struct Entry;
  struct Helper;

  io::awaitable<Result<VolumeReply>> call(VolumeRequest request);
  io::awaitable<Result<void>> call_void(VolumeRequest request);
  template <class T>
  io::awaitable<Result<T>> call_for(T VolumeReply::*part, VolumeRequest request);
  io::awaitable<Result<VolumeReply>> ask_helper(const VolumeRequest& request);
  io::awaitable<void> read_hints(std::shared_ptr<Helper> helper);
  io::awaitable<void> pause(Duration duration);
  Result<void> start_helper();
  void reap();
  void end_helper();
  void finish(Entry& entry, Result<VolumeReply> outcome);
  void enqueue(std::shared_ptr<Entry> entry);
  void forget(const Entry& entry);
  void drop_oldest();

  io::asio::any_io_executor executor_;
  Options options_;
  std::deque<std::shared_ptr<Entry>> queue_;
  std::shared_ptr<Helper> helper_;
  io::TaskGroup hints_;
  std::vector<int> dead_;  ///< Pids of ended helpers still to be reaped.
  io::asio::steady_timer wake_;
  io::asio::steady_timer pause_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::map<std::string, std::uint64_t> dropped_;  ///< By path, not yet reported in the file.
  std::uint64_t dropped_bytes_ = 0;
  std::size_t droppable_ = 0;  ///< Bytes of droppable appends in the queue.
  std::string watched_folder_;
  std::string watched_name_;
  bool stopped_ = false;
};

}  // namespace dt::supervisor
