#include "core/job/process_life.h"

#include <algorithm>
#include <array>

namespace dt {
namespace {

using S = WorkerState;
constexpr std::size_t kStates = 8;
constexpr std::size_t kEvents = 7;
constexpr auto kNo = static_cast<S>(255);  // the event means nothing here

// Columns: HostChosen, StartSent, Joined, Committed, ToldToLeave, Unwanted, Ended.
constexpr std::array<std::array<S, kEvents>, kStates> kTable{{
    /* Seen      */ {S::kPreparing, kNo, kNo, kNo, kNo, S::kGone, S::kGone},
    /* Preparing */ {kNo, S::kStarting, kNo, kNo, kNo, S::kGone, S::kGone},
    /* Starting  */ {kNo, kNo, S::kWarm, kNo, kNo, S::kStopping, S::kGone},
    /* Warm      */ {kNo, kNo, kNo, S::kMember, kNo, S::kStopping, S::kGone},
    /* Member    */ {kNo, kNo, kNo, kNo, S::kLeaving, kNo, S::kGone},
    /* Leaving   */ {kNo, kNo, kNo, kNo, kNo, kNo, S::kGone},
    /* Stopping  */ {kNo, kNo, kNo, kNo, kNo, kNo, S::kGone},
    /* Gone      */ {kNo, kNo, kNo, kNo, kNo, kNo, kNo},
}};

}  // namespace

std::string_view name(WorkerState state) {
  static constexpr std::array<std::string_view, kStates> kNames{
      "SEEN", "PREPARING", "STARTING", "WARM", "MEMBER", "LEAVING", "STOPPING", "GONE"};
  return kNames[static_cast<std::size_t>(state)];
}

std::optional<WorkerState> next_state(WorkerState state, WorkerEvent event) {
  const S next = kTable[static_cast<std::size_t>(state)][static_cast<std::size_t>(event)];
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

void Failures::add(std::int64_t wall_ns, Duration forgiven_after) {
  if (forgiven_after > Duration{} && wall_ns > last_ns_) {
    const auto forgiven = static_cast<std::uint64_t>((wall_ns - last_ns_) / forgiven_after.count());
    count_ -= static_cast<std::uint32_t>(std::min<std::uint64_t>(forgiven, count_));
  }
  ++count_;
  last_ns_ = wall_ns;
}

Duration retry_delay(std::uint32_t attempt, std::uint64_t salt) {
  using namespace std::chrono_literals;
  const std::uint32_t doublings = std::min(attempt > 0 ? attempt - 1 : 0U, 6U);
  const Duration plain = std::min<Duration>(1s * (1 << doublings), 60s);
  std::uint64_t mixed = (salt + attempt) * 0x9e3779b97f4a7c15U;
  mixed ^= mixed >> 32;
  const auto percent = static_cast<Duration::rep>(75 + mixed % 51);
  return plain / 100 * percent;
}

}  // namespace dt
