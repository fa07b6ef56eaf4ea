/// The job's story: every note of the machine as a line on the console, in events.jsonl, and in
/// memory for `dtctl events`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "core/job_events.h"
#include "io/log.h"

namespace dt::supervisor {

/// One thread.
class Story {
 public:
  /// `append_event`: a line (with newline) of events.jsonl. `console`: the supervisor's own log.
  Story(io::Log& console, std::function<void(std::string)> append_event)
      : console_(console), append_event_(std::move(append_event)) {}

  /// `wall_ns` since 1970; `generation` and `epoch` place the event in the job's time.
  void tell(const Note& note, std::int64_t wall_ns, std::uint64_t generation,
            std::optional<std::uint32_t> epoch);

  /// {"ok":true,"events":[...],"next":N}: events from number `from` on that are still kept.
  [[nodiscard]] std::string events_json(std::uint64_t from) const;

 private:
  static constexpr std::size_t kKept = 10'000;
  io::Log& console_;
  std::function<void(std::string)> append_event_;
  std::deque<std::string> events_;
  std::uint64_t first_ = 0;  ///< Number of events_.front().
};

}  // namespace dt::supervisor
