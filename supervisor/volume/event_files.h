/// The files of a job's events: events.jsonl among the job's files and, for an elastic job, the
/// name by which people look for it in the job folder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/log.h"
#include "supervisor/volume/events_file.h"

namespace dt::supervisor {

/// One thread. `volume` outlives it.
class EventFiles {
 public:
  /// `file`: .dtlaunch/<job>/events.jsonl. `seen_at`: its name in the job folder, a relative link
  /// to `file`, or a copy of it if the volume has no links; nullopt without such a name.
  EventFiles(io::asio::any_io_executor executor, VolumeClient& volume, std::string file,
             std::optional<std::string> seen_at);

  /// Empties the file for a new job, else cuts off an incomplete line; then makes the other name.
  /// Returns the file's events: `bytes` is kAnySize if it cannot be read, which it logs. kTimeout
  /// if the volume does not answer. Once, before any other call.
  io::awaitable<Result<KnownEvents>> open(bool is_new, io::Log& log);
  /// Calls `told` with the error that keeps a file from being written, when that changes.
  void on_error(std::function<void(const Error&)> told) { told_ = std::move(told); }

  /// A line, with its newline.
  void add(std::string_view line);
  /// The files whose run() must be running. Valid after open().
  [[nodiscard]] std::vector<EventsFile*> files();
  /// Waits until everything is written, at most `limit`; false if it is not.
  io::awaitable<bool> finish(Duration limit);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  /// The file's text; nothing when it cannot be read.
  io::awaitable<Result<std::optional<std::string>>> read(io::Log& log);
  io::awaitable<Result<void>> show(std::optional<std::string> text);

  io::asio::any_io_executor executor_;
  VolumeClient& volume_;
  std::string path_;
  std::optional<std::string> seen_at_;
  std::function<void(const Error&)> told_;
  std::optional<EventsFile> file_;
  std::optional<EventsFile> copy_;
};

}  // namespace dt::supervisor
