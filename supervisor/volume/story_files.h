/// Where a job's story lies: events.jsonl among the job's files and, of an elastic job, the name by
/// which people look for it in the job folder.
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
class StoryFiles {
 public:
  /// `file`: .dtlaunch/<job>/events.jsonl. `seen_at`: the same in the job folder, a relative link
  /// to `file`, or a copy of it where the volume has no links; none: there is no such name.
  StoryFiles(io::asio::any_io_executor executor, VolumeClient& volume, std::string file,
             std::optional<std::string> seen_at);

  /// Makes the file empty for a new job, else cuts off what is no whole line; then the other name.
  /// What the file holds: `bytes` is kAnySize where it cannot be read, which `log` is told.
  /// kTimeout when the volume does not answer. Once, before anything else.
  io::awaitable<Result<ToldEvents>> open(bool is_new, io::Log& log);
  /// Called with what keeps a file from being written, when that changes.
  void on_error(std::function<void(const Error&)> told) { told_ = std::move(told); }

  /// A line, with its newline.
  void add(std::string_view line);
  /// Those whose run() is to be running. Valid after open().
  [[nodiscard]] std::vector<EventsFile*> files();
  /// Waits until everything is written, at most so long; false if it is not.
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
