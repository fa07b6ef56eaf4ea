/// The job's event log: every note of the machine as a line on the console, in events.jsonl, and in
/// memory for `dtctl events`.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "core/job/events.h"
#include "io/log.h"

namespace dt::supervisor {

/// One thread.
class EventLog {
 public:
  /// `append_event`: a line (with newline) of events.jsonl. `console`: the supervisor's own log.
  EventLog(io::Log& console, std::function<void(std::string)> append_event)
      : console_(console), append_event_(std::move(append_event)) {}

  /// The place of an event in the job's time.
  struct Place {
    std::int64_t wall_ns = 0;  ///< Nanoseconds since 1970.
    Generation generation = {};
    std::optional<Epoch> epoch = {};
    std::optional<Rank> rank = {};  ///< Rank of the event's worker.
  };
  void tell(const Note& note, const Place& place);
  /// Sets the number of earlier terms' events. Call it before the first event of this term.
  void go_on_from(std::uint64_t events) { first_ = events; }

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
