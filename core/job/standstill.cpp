#include "core/job/standstill.h"

#include <algorithm>
#include <set>
#include <vector>

#include "core/protocol/exit_code.h"

namespace dt {
namespace {

/// A standstill that lasts so long becomes an event, however long --hang-timeout is.
constexpr Duration kToldAfter = std::chrono::seconds(30);
/// Workers that a message names.
constexpr std::size_t kNamed = 8;

std::string workers_text(WorkerId first, std::size_t more) {
  return fmt::format("worker {}{}", first, more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace

void Standstill::moved() {
  moved_at_ = job_.now();
  lasted_.reset();
  is_noted_ = false;
}

Standstill::Sight Standstill::look() const {
  const Boundary& boundary = job_.boundary;
  if (job_.initial() || job_.finishing() || boundary.returns_to() || !boundary.is_anyone_missing())
    return Sight::kMoves;
  bool is_known = servers_.watch().all_well();
  for (const WorkerId id : boundary.contributors()) {
    const bool waits = boundary.arrivals().contains(id) || hang_watch_.waits(id);
    if (!waits) return Sight::kMoves;
    const Worker* w = workers_.find(id);
    is_known = is_known && w && w->state == WorkerState::kMember && hosts_.is_heard(w->host) &&
               hang_watch_.is_alive(id, job_.now()) && !boundary.awaits_release(id);
  }
  return is_known ? Sight::kStands : Sight::kUnknown;
}

void Standstill::tick(Duration passed) {
  const Sight sight = look();
  if (sight == Sight::kUnknown) return;
  if (sight == Sight::kMoves) return moved();
  lasted_ = lasted_.value_or(Duration{}) + passed;
  if (job_.now() - moved_at_ >= LostTime::kLeastStanding)
    for (const WorkerId id : job_.boundary.contributors())
      lost_time_.stands(id, kStandstillCause, moved_at_);
  const Duration limit = job_.options.hang_timeout;
  const bool has_limit = limit > Duration{};
  if (!is_noted_ && *lasted_ >= (has_limit ? std::min(kToldAfter, limit / 2) : kToldAfter)) {
    is_noted_ = true;
    job_.note(Note::kFailure, "standstill",
              fmt::format("nothing has moved for {:.1f} s: {}{}", seconds(*lasted_), text(),
                          has_limit ? fmt::format("; the job ends in {:.1f} s (--hang-timeout)",
                                                  seconds(limit - *lasted_))
                                    : ""));
  }
  if (has_limit && *lasted_ >= limit)
    job_.end(kExitStandstill,
             fmt::format("{}: a call that not every worker makes, or in another order "
                         "(nothing has moved for {:.0f} s, --hang-timeout)",
                         text(), seconds(limit)));
}

std::string Standstill::wait_of(WorkerId worker) const {
  if (job_.boundary.arrivals().contains(worker)) {
    const auto missing = job_.boundary.missing();
    if (missing.empty()) return {};
    return "at the epoch boundary for " + workers_text(missing.front(), missing.size() - 1);
  }
  const WaitingFor* at = hang_watch_.wait_of(worker);
  if (!at) return "in a round";
  return fmt::format("in {} for {}", hang_watch_.name_of(*at), workers_text(at->lacks, at->more));
}

std::string Standstill::text() const {
  // First one worker of each kind: a thousand may wait for one.
  std::vector<WorkerId> named;
  std::set<std::string> seen;
  for (const WorkerId id : job_.boundary.contributors())
    if (named.size() < kNamed && seen.insert(wait_of(id)).second) named.push_back(id);
  std::string out = "all workers wait for each other:";
  for (const WorkerId id : named)
    out += fmt::format("{} worker {} {}", id == named.front() ? "" : ",", id, wait_of(id));
  const std::size_t rest = job_.boundary.contributors().size() - named.size();
  return rest > 0 ? fmt::format("{}, and {} more", out, rest) : out;
}

}  // namespace dt
