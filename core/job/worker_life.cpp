#include "core/job/worker_life.h"

#include <array>

namespace dt {
namespace {

using S = WorkerState;
constexpr std::size_t kEvents = 10;
constexpr auto kNo = static_cast<S>(255);  // the event means nothing here

using Row = std::array<S, kWorkerStates>;
constexpr S kSee = S::kSeen, kPre = S::kPreparing, kSta = S::kStarting, kWar = S::kWarm,
            kMem = S::kMember, kLea = S::kLeaving, kSto = S::kStopping, kGon = S::kGone;

// One row per event, one column per state.
constexpr std::array<Row, kEvents> kTable{{
    //                    Seen  Prep. Start Warm  Memb. Leav. Stop. Gone
    /* HostChosen      */ {kPre, kNo, kNo, kNo, kNo, kNo, kNo, kNo},
    /* HostFailed      */ {kSee, kSee, kNo, kNo, kNo, kNo, kNo, kNo},
    /* StartSent       */ {kNo, kSta, kNo, kNo, kNo, kNo, kNo, kNo},
    /* StartLost       */ {kNo, kNo, kPre, kNo, kNo, kNo, kNo, kNo},
    /* Joined          */ {kWar, kWar, kWar, kNo, kNo, kNo, kNo, kNo},
    /* ServersReplaced */ {kNo, kNo, kNo, kSta, kNo, kNo, kNo, kNo},
    /* Committed       */ {kMem, kMem, kMem, kMem, kNo, kNo, kNo, kNo},
    /* Removed         */ {kNo, kNo, kNo, kNo, kLea, kNo, kNo, kNo},
    /* Unwanted        */ {kGon, kGon, kSto, kSto, kNo, kNo, kNo, kNo},
    /* Ended           */ {kGon, kGon, kGon, kGon, kGon, kGon, kGon, kNo},
}};

}  // namespace

std::string_view name(WorkerState state) {
  static constexpr std::array<std::string_view, kWorkerStates> kNames{
      "SEEN", "PREPARING", "STARTING", "WARM", "MEMBER", "LEAVING", "STOPPING", "GONE"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<WorkerState> next_state(WorkerState state, WorkerEvent event) {
  const S next = kTable[static_cast<std::size_t>(event)][static_cast<std::size_t>(state)];
  if (next == kNo) return std::nullopt;
  return next;
}

bool may_run(WorkerState state) {
  return state == S::kStarting || state == S::kWarm || state == S::kMember ||
         state == S::kLeaving || state == S::kStopping;
}

bool on_the_way(WorkerState state) {
  return state == S::kSeen || state == S::kPreparing || state == S::kStarting || state == S::kWarm;
}

bool WorkerLife::advance(WorkerEvent event) {
  const auto next = next_state(state_, event);
  if (next) state_ = *next;
  return next.has_value();
}

}  // namespace dt
