/// The files of a job's events: events.jsonl among the job's files and, for an elastic job, the
/// name by which people look for it in the job folder.
#pragma once

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <string_view>

#include "io/log.h"
#include "supervisor/volume/events_file.h"

namespace dt::supervisor {

/// One thread. `volume` outlives it.
class EventFiles {
 public:
  /// `file`: .dtlaunch/<job>/events.jsonl. `seen_at`: its name in the job folder, a relative link
  /// to `file`, or a copy of it if the volume has no links; nullopt without such a name.
  EventFiles(VolumeClient& volume, std::string file, std::optional<std::string> seen_at)
      : volume_(volume), path_(std::move(file)), seen_at_(std::move(seen_at)) {}

  /// Empties the file for a new job, else cuts off an incomplete line; then makes the other name.
  /// Returns the file's events: `bytes` is kAnySize if it cannot be read, which it logs. kTimeout
  /// if the volume does not answer. Once, before any other call. `on_error`: see MirroredFile.
  io::awaitable<Result<KnownEvents>> open(bool is_new, io::Log& log,
                                          std::function<void(const Error&)> on_error);

  /// A line, with its newline.
  void add(std::string_view line);
  /// The files whose run() must be running. Valid after open().
  [[nodiscard]] std::list<EventsFile>& files() { return files_; }
  [[nodiscard]] bool is_written() const;
  /// Waits until everything is written, at most `limit`; false if it is not.
  io::awaitable<bool> finish(Duration limit);
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  /// The file's text; nothing when it cannot be read.
  io::awaitable<Result<std::optional<std::string>>> read(io::Log& log);
  io::awaitable<Result<void>> show(std::optional<std::string> text);

  VolumeClient& volume_;
  std::string path_;
  std::optional<std::string> seen_at_;
  std::list<EventsFile> files_;  ///< The file, and its copy if there is one.
};

}  // namespace dt::supervisor
