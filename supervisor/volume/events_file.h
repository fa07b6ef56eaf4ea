/// events.jsonl on the shared volume: every line once and in order, however long the volume stalls.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "io/log.h"
#include "supervisor/volume/mirrored_file.h"

namespace dt::supervisor {

/// The events of earlier terms in the file.
struct KnownEvents {
  std::uint64_t bytes = 0;  ///< Bytes of its whole lines; a part of one more may follow.
  std::uint64_t next = 0;   ///< Number of the next event.
  /// SEQs of the lines of host_worker_log that have their event.
  std::set<std::uint64_t> log_lines;
};
/// `text`: the whole file. A foreign line counts as an event.
[[nodiscard]] KnownEvents told_events(std::string_view text);

/// One thread.
class EventsFile final : public MirroredFile {
 public:
  /// `size`: of the file; kAnySize if that could not be learnt.
  EventsFile(VolumeClient& volume, std::string path, std::uint64_t size)
      : MirroredFile(volume, std::move(path)), size_(size) {}

  /// A line, with its newline.
  void add(std::string_view line);

 private:
  [[nodiscard]] bool is_behind() const override { return !missing_.empty(); }
  io::awaitable<Result<void>> catch_up() override;

  std::uint64_t size_;   ///< kAnySize, too, once another process has changed the file.
  std::string missing_;  ///< Not yet written; after a failure a part of it may be in the file.
};

/// The files of a job's events: events.jsonl among the job's files and, for an elastic job, the
/// name by which people look for it in the job folder. One thread. `volume` outlives it.
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
  [[nodiscard]] bool is_written() const {
    return std::ranges::all_of(files_, &EventsFile::is_written);
  }
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
