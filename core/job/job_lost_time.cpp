#include <algorithm>
#include <utility>

#include "core/job/job.h"
#include "core/job/job_text.h"

namespace dt {
namespace {

/// How long after a supervisor's restart waiting at the boundary is put down to that.
constexpr Duration kReturn = std::chrono::seconds(15);
constexpr const char* kBelowLeast = "below-min-workers";
/// Less in all is not worth an event.
constexpr Duration kWorthTelling = std::chrono::milliseconds(50);
/// Members always wait a moment for the slowest at the boundary: that alone has to add up to so
/// much.
constexpr Duration kSlownessWorthTelling = std::chrono::seconds(10);
constexpr const char* kBoundary = "boundary";
constexpr const char* kServerRecovery = "server recovery";

}  // namespace

void Job::lose(const std::string& cause, Duration time) {
  if (time <= Duration{}) return;
  lost_time_.lose(cause, time);
  just_lost_[cause] += time;
}

LostTime Job::lost_time() const {
  LostTime all = lost_time_;
  const Time now = now_.at;
  all.pass(0, now);
  const auto lose_open = [&](const std::string& cause, Duration time) {
    if (time > Duration{}) all.lose(cause, time);
  };
  const auto below = [&](Time from) {
    return std::clamp(below_least_since_.value_or(now), from, std::max(from, now));
  };
  for (const auto& [id, at] : arrived_at_) {
    if (leaves(id)) continue;
    lose_open("boundary", below(at) - at);
    lose_open(kBelowLeast, now - below(at));
  }
  if (death_) {
    for (const WorkerId id : death_->second) {
      const auto arrived = arrived_at_.find(id);
      lose_open("death", (arrived == arrived_at_.end() ? now : arrived->second) - death_->first);
    }
  }
  if (nobody_since_) {
    lose_open("death", below(*nobody_since_) - *nobody_since_);
    lose_open(kBelowLeast, now - below(*nobody_since_));
  }
  if (recovering_since_) {
    const auto members = std::max<std::size_t>(1, boundary_.contributors().size());
    lose_open(kServerRecovery, (now - *recovering_since_) * static_cast<Duration::rep>(members));
  }
  return all;
}

bool Job::leaves(WorkerId id) const {
  const auto& all = boundary_.contributors();
  return std::find(all.begin(), all.end(), id) == all.end();
}

void Job::count_time() {
  // While nobody is left there is at least one that should be.
  const std::size_t members = std::max<std::size_t>(1, boundary_.contributors().size());
  lost_time_.pass(initial() ? 0 : members, now_.at);
}

void Job::save_spent_time() {
  if (!lost_time_.is_save_due(now_.at)) return;
  TimeSpent spent{static_cast<std::uint64_t>(lost_time_.total().count()), {}};
  for (const auto& [cause, time] : lost_time_.by_cause())
    spent.lost.push_back({cause, static_cast<std::uint64_t>(time.count())});
  record(spent);
}

void Job::count_silent_servers() {
  const auto since = server_watch_.silent_since();
  if (!since || !released_at_) return;
  // Nobody waited for it before the epoch began.
  const Duration time = lost_time_.uncounted_silence(std::max(*since, *released_at_), now_.at);
  if (finishing() || recovering_since_) return;
  const auto waits_for_dead = [this](WorkerId id) {
    return death_ && std::count(death_->second.begin(), death_->second.end(), id) > 0;
  };
  const auto& all = boundary_.contributors();
  lose("server", time * std::count_if(all.begin(), all.end(), [&](WorkerId id) {
                   return !waits_for_dead(id) && arrived_at_.count(id) == 0 &&
                          to_release_.count(id) == 0;
                 }));
}

void Job::lost_since(Time since) {
  if (initial() || finishing() || recovering_since_) return;
  dead_since_ = std::min(dead_since_.value_or(since), since);
}

void Job::count_wait_for_dead(bool nobody_left) {
  Time since = dead_since_.value_or(now_.at);
  // Nobody waited in the epoch for it before the epoch began: with the release, or with its commit
  // where a server's acknowledgement keeps the release back.
  since = std::max(since, released_at_.value_or(complete_at_.value_or(since)));
  since = std::max(since, lost_time_.silence_counted_until().value_or(since));
  dead_since_.reset();
  if (finishing() || recovering_since_) return;
  for (auto& [id, at] : arrived_at_) {
    const Time from = std::max(at, since);
    lose_at_boundary(at, from);
    lose("death", now_.at - from);
    at = now_.at;
  }
  if (nobody_left) {
    end_death(since);
    nobody_since_ = since;
    return;
  }
  std::vector<WorkerId> stopped = boundary_.missing();
  std::erase_if(stopped, [this](WorkerId id) { return arrived_at_.count(id) > 0; });
  if (!death_) {
    death_.emplace(since, stopped);
    return;
  }
  std::erase_if(death_->second, [&](WorkerId id) {
    return std::find(stopped.begin(), stopped.end(), id) == stopped.end();
  });
}

void Job::lose_at_boundary(Time from, Time until) {
  const Time below = std::clamp(below_least_since_.value_or(until), from, until);
  lose("boundary", below - from);
  lose(kBelowLeast, until - below);
}

void Job::count_death() {
  if (finishing()) death_.reset();  // who ends waits for nobody
  if (!death_ || !boundary_.all_acked(server_ids())) return;
  end_death(now_.at);
  tell_lost_time();
}

void Job::end_death(Time until) {
  if (!death_) return;
  for (const WorkerId id : death_->second) {
    const auto arrived = arrived_at_.find(id);  // from then on it waits at the boundary
    lose("death", (arrived == arrived_at_.end() ? until : arrived->second) - death_->first);
  }
  death_.reset();
  lost_time_.counted_until(until);
}

void Job::boundary_is_complete(std::string cause) {
  complete_at_ = now_.at;
  boundary_cause_ = std::move(cause);
  if (nobody_since_) {
    const Time until = std::max(*nobody_since_, below_least_since_.value_or(now_.at));
    lose("death", until - *nobody_since_);
    lose(kBelowLeast, now_.at - until);
  }
  nobody_since_.reset();
  if (!below_least_since_) return;
  for (auto& [id, at] : arrived_at_) lose_at_boundary(std::exchange(at, now_.at), now_.at);
}

void Job::recovery_begins() {
  end_death(now_.at);
  for (const auto& [id, at] : arrived_at_)
    if (!leaves(id)) lose_at_boundary(at, now_.at);
  arrived_at_.clear();
  below_least_since_.reset();
  if (nobody_since_) lose("death", now_.at - *nobody_since_);
  nobody_since_.reset();
  dead_since_.reset();
  if (!recovering_since_) recovering_since_ = now_.at;
  if (!lost_servers_at_) lost_servers_at_ = now_.at;
}

void Job::recovery_is_complete() {
  const auto members = std::max<std::size_t>(1, boundary_.contributors().size());
  const Time since = recovering_since_.value_or(now_.at);
  lose(kServerRecovery, (now_.at - since) * static_cast<Duration::rep>(members));
  recovering_since_.reset();
  // Until their release.
  for (const WorkerId id : boundary_.contributors()) arrived_at_[id] = now_.at;
  boundary_is_complete(kServerRecovery);
}

void Job::tell_recovery() {
  const double took = seconds(now_.at - *lost_servers_at_);
  lost_servers_at_.reset();
  Note told;
  told.kind = Note::Kind::kCommit;
  told.what = "rolled_back";
  told.text = fmt::format("generation {}: epoch {} begins again, {:.1f} s after {}",
                          boundary_.generation(), *boundary_.epoch(), took, servers_why_);
  told.numbers = {{"recovery_s", took}, {"from_epoch", interrupted_.value_or(Epoch(0)).value}};
  effects_.push_back(std::move(told));
}

void Job::count_wait(WorkerId worker) {
  const auto arrived = arrived_at_.find(worker);
  if (arrived == arrived_at_.end()) return;
  const Time complete = std::max(arrived->second, complete_at_.value_or(arrived->second));
  const bool returned = resumed_at_ && arrived->second - *resumed_at_ < kReturn;
  lose(returned ? "supervisor" : "boundary", complete - arrived->second);
  // Who leaves is no member any more.
  if (!leaves(worker)) lose(returned ? "supervisor" : boundary_cause_, now_.at - complete);
  arrived_at_.erase(arrived);
}

void Job::tell_lost_time() {
  Duration sum{};
  for (const auto& [cause, time] : just_lost_) sum += time;
  const bool is_slowness = just_lost_.size() == 1 && just_lost_.count(kBoundary) == 1;
  if (sum < (is_slowness ? kSlownessWorthTelling : kWorthTelling)) return;
  Note told;
  told.kind = Note::Kind::kMeasure;
  told.what = "time_lost";
  told.text = fmt::format("{:.3f} worker-seconds lost:", seconds(sum));
  for (const auto& [cause, time] : just_lost_) {
    told.text += fmt::format(" {} {:.3f}", cause, seconds(time));
    told.numbers.emplace_back(cause + "_s", seconds(time));
  }
  just_lost_.clear();
  effects_.emplace_back(std::move(told));
}

}  // namespace dt
