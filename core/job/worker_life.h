/// One worker's life as a table of states and events, and the only way to change its state.
///
///     kSeen -> kPreparing -> kStarting -> kWarm -> kMember -> kLeaving -> kGone
///        \________\____________\___________\-- unwanted --> kStopping -> kGone
///
/// Every state goes to kGone when the process has ended or its host is lost. States up to kWarm are
/// not in the journal: a replayed worker is kSeen until a record or its agent shows more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dt {

enum class WorkerState : std::uint8_t {
  kSeen,       ///< Wanted; waits for its host (or for the host's cooling to end).
  kPreparing,  ///< The agent is being reached, the data check runs.
  kStarting,   ///< The process was started; it loads, connects and pulls.
  kWarm,       ///< It has joined: blocked in its first epoch_boundary, ready.
  kMember,     ///< In the view.
  kLeaving,    ///< Removed at a boundary; its process still runs.
  kStopping,   ///< Not wanted any more before it was a member; being stopped.
  kGone,       ///< No process, or fenced for good.
};

inline constexpr std::size_t kWorkerStates = 8;

enum class WorkerEvent : std::uint8_t {
  kHostChosen,       ///< Its host is being reached and checked.
  kHostFailed,       ///< Its host could not be reached or prepared: it waits for the next try.
  kStartSent,        ///< The start is sent.
  kStartLost,        ///< The agent has never received the start.
  kJoined,           ///< Its first Arrive.
  kServersReplaced,  ///< It has to join again, with the values of the new servers.
  kCommitted,        ///< A commit made it a member.
  kRemoved,          ///< A commit removed it from the members.
  kUnwanted,         ///< Its host is no longer wanted and it is not a member.
  kEnded,            ///< The process ended, or the host is lost.
};

[[nodiscard]] std::string_view name(WorkerState state);

/// The state after `event`; nothing if the event means nothing in this state (a duplicate, or a
/// message that crossed another): the caller ignores it.
[[nodiscard]] std::optional<WorkerState> next_state(WorkerState state, WorkerEvent event);

/// A process may exist in this state.
[[nodiscard]] bool may_run(WorkerState state);
/// On its way to become a member.
[[nodiscard]] bool on_the_way(WorkerState state);

/// A state that changes by the table alone.
class WorkerLife {
 public:
  /// Applies the event; false if it means nothing in the present state.
  [[nodiscard]] bool advance(WorkerEvent event);
  // NOLINTNEXTLINE(google-explicit-constructor): a life reads as its state everywhere.
  operator WorkerState() const { return state_; }

 private:
  WorkerState state_ = WorkerState::kSeen;
};

}  // namespace dt
