#include "core/job/lost_time.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/lookup.h"

namespace dt {
namespace {

/// How long after a supervisor's restart a wait at the boundary counts as caused by it.
constexpr Duration kReturn = std::chrono::seconds(15);
/// Between two records of the sums.
constexpr Duration kSaveEvery = std::chrono::seconds(30);
constexpr const char* kBelowLeast = "below-min-workers";
/// A smaller sum gets no event, nor one of less than a hundredth of the members' time.
constexpr Duration kLeastNoted = std::chrono::milliseconds(50);
/// Members always wait a moment for the slowest at the boundary: a sum of that cause alone gets an
/// event from here on.
constexpr Duration kLeastSlowness = std::chrono::seconds(10);
constexpr const char* kBoundary = "boundary";
constexpr const char* kServerRecovery = "server recovery";

}  // namespace

void LostTime::lose(const std::string& cause, Duration time) {
  if (time <= Duration{}) return;
  sums_.lose(cause, time);
  unreported_[cause] += time;
}

Goodput LostTime::so_far() const {
  LostTime ended = *this;
  ended.pass();
  for (const auto& [id, at] : arrived_)
    if (job_.boundary.contributes(id)) ended.lose_waiting(kBoundary, at);
  ended.end_death(job_.now());
  ended.end_nobody();
  ended.lose_recovery();
  ended.lose_standing();
  return ended.sums_;
}

std::size_t LostTime::members() const {
  return std::max<std::size_t>(1, job_.boundary.contributors().size());
}

void LostTime::begin(bool is_resumed) {
  group_has_run_ = job_.restarts_group() && (sums_.total() > Duration{} || job_.group_restarts > 0);
  if (group_has_run_ && job_.group_stops) stands_since_ = job_.now();
  pass();
  if (!is_resumed) return;
  resumed_at_ = job_.now();
  if (job_.boundary.returns_to()) recovering_since_ = lost_servers_at_ = job_.now();
}

void LostTime::apply(const TimeSpent& r) {
  std::map<std::string, Duration> lost;
  const auto time = [](std::uint64_t ns) { return Duration(static_cast<Duration::rep>(ns)); };
  for (const auto& [cause, ns] : r.lost) lost[cause] = time(ns);
  sums_.resume(time(r.total_ns), std::move(lost));
}

void LostTime::tick() {
  pass();
  const Time now = job_.now();
  if (!saved_at_) saved_at_ = now;
  if (now - *saved_at_ < kSaveEvery || sums_.total() <= Duration{}) return;
  saved_at_ = now;
  TimeSpent spent{static_cast<std::uint64_t>(sums_.total().count()), {}};
  for (const auto& [cause, time] : sums_.by_cause())
    spent.lost.emplace_back(cause, static_cast<std::uint64_t>(time.count()));
  job_.record(spent);
}

void LostTime::stands(WorkerId worker, const char* cause, Time since) {
  const bool is_counted =  // as something else
      job_.finishing() || is_recovering() || job_.boundary.awaits_release(worker) ||
      (death_ && std::ranges::count(death_->stopped, worker) > 0);
  if (!released_at_ || is_counted) return;
  Time& until = stood_until_[worker];
  Time from = std::max({since, *released_at_, until, silence_counted_until_.value_or(since)});
  if (const auto arrived = arrived_.find(worker); arrived != arrived_.end()) {
    from = std::max(from, arrived->second);
    lose(kBoundary, from - arrived->second);
    arrived->second = job_.now();
  }
  until = job_.now();
  lose(cause, until - from);
}

void LostTime::server_silent(Time since) {
  if (!released_at_) return;
  // No member waited for it before the epoch began.
  Time from = std::max(since, *released_at_);
  from = std::max(from, silence_counted_until_.value_or(from));
  silence_counted_until_ = job_.now();
  if (job_.finishing() || is_recovering()) return;
  std::set<WorkerId> wait_for_dead;
  if (death_) wait_for_dead = {death_->stopped.begin(), death_->stopped.end()};
  for (const WorkerId id : job_.boundary.contributors())
    if (!wait_for_dead.contains(id) && arrived_.count(id) == 0 && !job_.boundary.awaits_release(id))
      lose("server", job_.now() - std::max(from, value_in(stood_until_, id)));
}

void LostTime::member_died(Time since) {
  if (!has_begun() || job_.finishing() || is_recovering()) return;
  dead_since_ = std::min(dead_since_.value_or(since), since);
}

void LostTime::shrunk(bool nobody_left) {
  Time since = dead_since_.value_or(job_.now());
  // Nobody waited in the epoch for it before the epoch began: with the release, or with its commit
  // where a server's acknowledgement keeps the release back.
  since = std::max(since, released_at_.value_or(complete_at_.value_or(since)));
  since = std::max(since, silence_counted_until_.value_or(since));
  dead_since_.reset();
  if (job_.finishing() || is_recovering()) return;
  for (auto& [id, at] : arrived_) {
    if (!job_.boundary.contributes(id)) continue;  // it leaves, and its host may be away
    const Time from = std::max(at, since);
    lose_waiting(kBoundary, at, from);
    lose("death", job_.now() - from);
    at = job_.now();
  }
  if (nobody_left) {
    end_death(since);
    for (const auto& [id, stood_until] : stood_until_) since = std::max(since, stood_until);
    since = std::max(since, death_counted_until_.value_or(since));
    nobody_since_ = since;
    return;
  }
  std::vector<WorkerId> stopped = job_.boundary.missing();
  std::erase_if(stopped, [this](WorkerId id) { return arrived_.count(id) > 0; });
  if (!death_) {
    death_ = Death{since, std::move(stopped)};
    return;
  }
  const std::set<WorkerId> still(stopped.begin(), stopped.end());
  std::erase_if(death_->stopped, [&](WorkerId id) { return !still.contains(id); });
}

void LostTime::lose_waiting(const std::string& cause, Time from, Time until) {
  const Time below = std::clamp(job_.boundary.below_least_since().value_or(until), from, until);
  lose(cause, below - from);
  lose(kBelowLeast, until - below);
}

void LostTime::death_is_known() {
  if (job_.finishing()) return death_.reset();  // members that end do not wait
  end_death(job_.now());
  report();
}

void LostTime::lose_death(WorkerId stopped, Time until) {
  const auto arrived = arrived_.find(stopped);  // from then on it waits at the boundary
  const Time since = std::max(death_->since, value_in(stood_until_, stopped));
  lose("death", (arrived == arrived_.end() ? until : arrived->second) - since);
}

void LostTime::gone(WorkerId worker) {
  if (death_ && std::erase(death_->stopped, worker) > 0) {
    lose_death(worker, job_.now());
    death_counted_until_ = job_.now();
  }
  arrived_.erase(worker);
  stood_until_.erase(worker);
}

void LostTime::end_death(Time until) {
  if (!death_) return;
  for (const WorkerId id : death_->stopped) lose_death(id, until);
  death_.reset();
  silence_counted_until_ = std::max(silence_counted_until_.value_or(until), until);
}

void LostTime::boundary_complete(std::string cause) {
  complete_at_ = job_.now();
  boundary_cause_ = std::move(cause);
  end_nobody();
  if (job_.boundary.below_least_since()) end_at_boundary();
}

void LostTime::end_nobody() {
  if (nobody_since_) lose_waiting("death", *nobody_since_);
  nobody_since_.reset();
}

void LostTime::end_at_boundary() {
  for (auto& [id, at] : arrived_) {
    if (death_ && std::erase(death_->stopped, id) > 0) lose_death(id, at);
    lose_waiting(kBoundary, std::exchange(at, job_.now()));
  }
}

void LostTime::recovery_begins() {
  end_death(job_.now());
  for (const auto& [id, at] : arrived_)
    if (job_.boundary.contributes(id)) lose_waiting(kBoundary, at);
  arrived_.clear();
  if (nobody_since_) lose("death", job_.now() - *nobody_since_);
  nobody_since_.reset();
  dead_since_.reset();
  if (!recovering_since_) recovering_since_ = job_.now();
  if (!lost_servers_at_) lost_servers_at_ = job_.now();
}

void LostTime::lose_recovery() {
  const Duration waited = job_.now() - recovering_since_.value_or(job_.now());
  lose(kServerRecovery, waited * static_cast<Duration::rep>(members()));
}

void LostTime::recovery_is_complete() {
  lose_recovery();
  recovering_since_.reset();
  // Until their release.
  for (const WorkerId id : job_.boundary.contributors()) arrived_[id] = job_.now();
  boundary_complete(kServerRecovery);
}

void LostTime::epoch_began_again(const std::string& why, std::optional<Epoch> from) {
  if (!lost_servers_at_) return;
  const double took = seconds(job_.now() - *lost_servers_at_);
  lost_servers_at_.reset();
  job_.note(
      Note::kCommit, "rolled_back",
      fmt::format("epoch {} begins again, {:.1f} s after {}", *job_.boundary.epoch(), took, why),
      {}, {}, {{"recovery_s", took}, {"from_epoch", from.value_or(Epoch(0)).value}});
}

void LostTime::released(WorkerId worker) {
  released_at_ = job_.now();
  const auto arrived = arrived_.find(worker);
  if (arrived == arrived_.end()) return;
  const Time complete = std::max(arrived->second, complete_at_.value_or(arrived->second));
  const bool returned = resumed_at_ && arrived->second - *resumed_at_ < kReturn;
  lose(returned ? "supervisor" : "boundary", complete - arrived->second);
  // Who leaves is no member any more.
  if (job_.boundary.contributes(worker))
    lose(returned ? "supervisor" : boundary_cause_, job_.now() - complete);
  arrived_.erase(arrived);
}

void LostTime::group_stops() {
  if (!group_has_run_) return;
  pass();
  // A host may have been silent since before its group ran.
  const Time since = std::max(dead_since_.value_or(job_.now()), group_runs_since_);
  if (!stands_since_) stands_since_ = since;
}

void LostTime::lose_standing() {
  if (!stands_since_) return;
  const Time since = std::exchange(*stands_since_, job_.now());
  lose(kRestartCause, (job_.now() - since) * static_cast<Duration::rep>(members()));
}

void LostTime::group_runs() {
  lose_standing();
  stands_since_.reset();
  dead_since_.reset();
  group_has_run_ = true;
  group_runs_since_ = job_.now();
  pass();
  report();
}

void LostTime::report() {
  Duration sum{};
  for (const auto& [cause, time] : unreported_) sum += time;
  const bool is_slowness = unreported_.size() == 1 && unreported_.count(kBoundary) == 1;
  pass();
  const Duration all = sums_.total() - noted_total_;
  if (sum < (is_slowness ? kLeastSlowness : kLeastNoted) || sum * 100 < all) return;
  noted_total_ = sums_.total();
  Note lost{Note::kMeasure, "time_lost", fmt::format("{:.3f} worker-seconds lost:", seconds(sum))};
  for (const auto& [cause, time] : unreported_) {
    lost.text += fmt::format(" {} {:.3f}", cause, seconds(time));
    lost.numbers.emplace_back(cause + "_s", seconds(time));
  }
  unreported_.clear();
  job_.add(std::move(lost));
}

}  // namespace dt
