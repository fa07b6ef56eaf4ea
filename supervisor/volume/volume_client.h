/// All access to the shared volume: one helper process, and deadlines on our side. A volume that
/// stalls delays only access to its files.
///
/// The order in which the helper gets what it is to do, one at a time:
///  1. Requests, for whose answer a caller waits, come in the order of their calls, before output.
///  2. Output (queue_append) of one file is written in the order in which it came. While it waits,
///     output of one file becomes one append.
///  3. A request that names a file comes after that file's output from before the call.
///  4. After kRequestsInARow requests the oldest output comes, so that it is not kept back for
///     ever.
/// So what must be on the volume before something else happens is a request whose answer is waited
/// for; nothing may depend on output, but that the rest of the same file follows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/asio.h"
#include "io/task_group.h"
#include "supervisor/volume/output_queue.h"
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
    /// Bytes of memory for waiting output: more than OutputCredit lets wait.
    std::size_t queue_limit = std::size_t{128} << 20;
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
  /// From here on a call that writes outside of the folder `own` is kInvalid, and changes nothing,
  /// unless the file `lock` has this text. The helper compares it just before it writes: who takes
  /// the lock in the milliseconds between may still get our bytes.
  void write_only_with(std::string lock, std::string text, const std::string& own) {
    lock_file_ = std::move(lock);
    lock_ = std::move(text);
    own_ = own + "/";
  }

  /// The file's content, nullopt if it does not exist; more than `most` bytes is an error.
  io::awaitable<Result<std::optional<std::string>>> read(std::string path,
                                                         std::size_t most = std::size_t{1} << 20);
  io::awaitable<Result<bool>> exists(std::string path) {
    return call_for(&VolumeReply::yes, {.op = VolumeOp::kExists, .path = std::move(path)});
  }
  /// False if it exists already. Synced.
  io::awaitable<Result<bool>> write_new(std::string path, std::string bytes,
                                        std::uint32_t mode = kMode) {
    return call_for(&VolumeReply::yes, {.op = VolumeOp::kWriteNew,
                                        .path = std::move(path),
                                        .bytes = std::move(bytes),
                                        .number = mode});
  }
  /// Whole new content or the old one, never a part. Synced.
  io::awaitable<Result<void>> replace(std::string path, std::string bytes,
                                      std::uint32_t mode = kMode) {
    return call_void({.op = VolumeOp::kReplace,
                      .path = std::move(path),
                      .bytes = std::move(bytes),
                      .number = mode});
  }
  /// replace() of a file that is the user's: it keeps mode and group, and its owner where that is
  /// allowed; a link stays, and the file at its end is replaced. Where that cannot be, it is an
  /// error, and nothing has changed: so for a link of another user.
  io::awaitable<Result<void>> rewrite(std::string path, std::string bytes) {
    return call_void({.op = VolumeOp::kRewrite,
                      .path = std::move(path),
                      .bytes = std::move(bytes),
                      .number = kMode});
  }
  /// With `at` the file must have that size, or a part of `bytes` behind it (an interrupted earlier
  /// try), so that repeating is harmless.
  io::awaitable<Result<void>> append(std::string path, std::string bytes,
                                     std::uint64_t at = kAnySize, bool sync = false) {
    return call_void({.op = VolumeOp::kAppend,
                      .path = std::move(path),
                      .bytes = std::move(bytes),
                      .number = at,
                      .sync = sync});
  }
  io::awaitable<Result<void>> truncate(std::string path, std::uint64_t size) {
    return call_void({.op = VolumeOp::kTruncate, .path = std::move(path), .number = size});
  }
  io::awaitable<Result<void>> make_dirs(std::string path) {
    return call_void({.op = VolumeOp::kMakeDirs, .path = std::move(path)});
  }
  io::awaitable<Result<void>> rename(std::string from, std::string to) {
    return call_void({.op = VolumeOp::kRename, .path = std::move(from), .path2 = std::move(to)});
  }
  /// Makes `path` a symbolic link to `target`, replacing any file; false if the volume has no
  /// links.
  io::awaitable<Result<bool>> link(std::string path, std::string target) {
    return call_for(&VolumeReply::yes,
                    {.op = VolumeOp::kLink, .path = std::move(path), .path2 = std::move(target)});
  }
  io::awaitable<Result<void>> remove(std::string path) {
    return call_void({.op = VolumeOp::kRemove, .path = std::move(path)});
  }
  io::awaitable<Result<std::vector<std::string>>> list(std::string path) {
    return call_for(&VolumeReply::names, {.op = VolumeOp::kList, .path = std::move(path)});
  }

  /// Free bytes for this user on the folder's file system.
  io::awaitable<Result<std::uint64_t>> room(std::string folder) {
    return call_for(&VolumeReply::number, {.op = VolumeOp::kRoom, .path = std::move(folder)});
  }

  /// Output: nobody waits for it, however long the volume stalls. Over the queue limit the oldest
  /// is dropped, and a line in the file reports how much. An error goes to on_append_error. With a
  /// `limit` the file and its older part, io::kOlder, have at most about so many bytes.
  void queue_append(const std::string& path, std::string bytes, std::uint64_t limit = 0);

  /// Calls on_hint when this file of this folder changes, best effort (other clients' changes are
  /// not seen), also after a helper's restart. One watch at most.
  void watch(std::string folder, std::string name);

  std::function<void()> on_hint;
  std::function<void(const std::string& path, const Error&)> on_append_error;
  /// So many bytes of queue_append do not wait any more: they are written, or lost.
  std::function<void(const std::string& path, std::size_t bytes)> on_output_done;

  /// How long the current request has been waiting for the volume; 0 without one.
  [[nodiscard]] Duration stalled_for() const;
  [[nodiscard]] std::uint64_t dropped_bytes() const { return output_.dropped_bytes(); }

  /// Output waits, and none of it was taken for OutputMotion::kStall.
  [[nodiscard]] bool is_output_stalled() const;
  /// Output waits, and is taken: at the end it is worth waiting for, unless there is haste.
  [[nodiscard]] bool is_output_moving() const;
  /// How long none of it was taken, the last time or now.
  [[nodiscard]] Duration last_output_stall() const;
  void make_haste() { has_haste_ = true; }

  /// What waits for the volume, with what it is working on.
  struct Waiting {
    std::size_t requests = 0;
    std::size_t appends = 0;  ///< Of output.
    std::size_t output_bytes = 0;
    Duration age{};         ///< How long the oldest of all has waited.
    Duration output_age{};  ///< How long the oldest output has waited.
  };
  [[nodiscard]] Waiting waiting() const;

  /// Waits until everything queued is done, at most `limit` and as long as is_output_moving();
  /// false if it is not.
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
  /// Gives the current entry to the helper, and finishes it unless it is to be repeated.
  io::awaitable<void> work();
  void finish(Entry& entry, Result<VolumeReply> outcome);
  /// Answers everything that waits: it will not be done.
  void refuse_rest();
  void enqueue(std::shared_ptr<Entry> entry);
  void forget(const Entry& entry);
  [[nodiscard]] bool is_idle() const;
  [[nodiscard]] bool has_output() const;
  /// What comes next by the order above; is_idle() is false.
  [[nodiscard]] std::shared_ptr<Entry> next();
  [[nodiscard]] std::shared_ptr<Entry> output_entry(OutputQueue::Append append);

  static constexpr int kRequestsInARow = 8;
  static constexpr std::uint32_t kMode = 0666;  ///< Of new files.

  io::asio::any_io_executor executor_;
  Options options_;
  std::deque<std::shared_ptr<Entry>> requests_;
  OutputQueue output_;
  OutputMotion motion_;
  bool has_haste_ = false;
  std::shared_ptr<Entry> current_;  ///< Taken from its queue; a helper works on it or did.
  int requests_in_a_row_ = 0;       ///< Since the last output, while some waits.
  std::shared_ptr<Helper> helper_;
  io::TaskGroup hints_;
  std::vector<int> dead_;  ///< Pids of ended helpers still to be reaped.
  io::asio::steady_timer wake_;
  io::asio::steady_timer pause_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  std::string lock_file_, lock_, own_;  ///< Of write_only_with().
  std::string watched_folder_;
  std::string watched_name_;
  bool stopped_ = false;
};

}  // namespace dt::supervisor
