/// events.jsonl on the shared volume: every line once and in order, however long the volume stalls.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>

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

}  // namespace dt::supervisor
