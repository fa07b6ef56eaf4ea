/// One worker's life as a table: every state and every event was thought about. Also how long to
/// wait before the next try.
///
///     kSeen -> kPreparing -> kStarting -> kWarm -> kMember -> kLeaving -> kGone
///        \________\____________\___________\-- unwanted --> kStopping -> kGone
///
/// Any state goes to kGone when the process has ended or is known to be fenced.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/time.h"

namespace dt {

enum class WorkerState : std::uint8_t {
  kSeen,       ///< Wanted; waits for its host (or for the host's cooling to end).
  kPreparing,  ///< The agent is being reached, the data check runs.
  kStarting,   ///< The process was started; it loads, connects and pulls.
  kWarm,       ///< It has joined: blocked in its first epoch_boundary, ready.
  kMember,     ///< In the view.
  kLeaving,    ///< Told to leave at a boundary; its process still runs.
  kStopping,   ///< Not wanted any more before it was a member; being stopped.
  kGone,       ///< No process, or fenced for good.
};

enum class WorkerEvent : std::uint8_t {
  kHostChosen,   ///< Its host is being reached and checked.
  kStartSent,    ///< The start is journalled and sent.
  kJoined,       ///< Its first Arrive.
  kCommitted,    ///< A commit made it a member.
  kToldToLeave,  ///< A commit removed it.
  kUnwanted,     ///< Its host is no longer wanted and it is not a member.
  kEnded,        ///< The process ended, or the host is dead.
};

[[nodiscard]] std::string_view name(WorkerState state);

/// The state after `event`; nothing if the event means nothing in this state (a duplicate or a
/// message that crossed another: to be ignored).
[[nodiscard]] std::optional<WorkerState> next_state(WorkerState state, WorkerEvent event);

/// A process may exist in this state.
[[nodiscard]] bool may_run(WorkerState state);
/// On its way to become a member.
[[nodiscard]] bool on_the_way(WorkerState state);

/// Failures of a host's workers, of which healthy time forgives one after the other.
class Failures {
 public:
  /// One more, at this wall-clock time: what the journal knows, so that a later term counts alike.
  void add(std::int64_t wall_ns, Duration forgiven_after);
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  std::uint32_t count_ = 0;
  std::int64_t last_ns_ = 0;
};

/// Growing, jittered delay before try number `attempt` (1 = after the first failure): 1 s, 2 s, 4 s
/// ... at most 60 s, times 0.75 to 1.25 by `salt`. The same input gives the same delay.
[[nodiscard]] Duration retry_delay(std::uint32_t attempt, std::uint64_t salt);

}  // namespace dt
