#include "core/job/group_restart.h"

#include <algorithm>
#include <utility>

#include "core/base/quantity.h"
#include "core/job/notes.h"
#include "core/job/retry.h"
#include "core/protocol/exit_code.h"

namespace dt {
namespace {

/// "c (1 more), b (1 fewer)"
std::string changes_text(const std::map<Host, std::uint32_t>& now,
                         const std::map<Host, std::uint32_t>& next) {
  std::string out;
  const auto add = [&out](const Host& host, std::uint32_t count, const char* what) {
    out += fmt::format("{}{} ({} {})", out.empty() ? "" : ", ", host, count, what);
  };
  for (const auto& [host, count] : next)
    if (const std::uint32_t had = value_in(now, host); count > had) add(host, count - had, "more");
  for (const auto& [host, had] : now)
    if (const std::uint32_t count = value_in(next, host); count < had)
      add(host, had - count, "fewer");
  return out;
}

std::map<Host, std::uint32_t> counts_of(const std::vector<Host>& hosts) {
  std::map<Host, std::uint32_t> out;
  for (const Host& host : hosts) ++out[host];
  return out;
}

}  // namespace

void GroupRestart::begin() {
  edited_at_ = stopped_at_ = job_.now();
  if (job_.group_stops) pending_reason_ = why_;
}

void GroupRestart::decide() {
  if (!job_.restarts_group() || job_.ending) return;
  prepare_hosts();
  if (!job_.group_stops) stop_if_due();
  if (job_.group_stops) begin_if_due();
  if (lost_time_.group_stands() && all_run()) lost_time_.group_runs();
}

void GroupRestart::prepare_hosts() {
  for (const Host& host : job_.agenda.hosts()) {
    if (is_ready(host)) lost_.erase(host);
    if (workers_.membership().wanted(host) == 0 || !hosts_.usable(host)) continue;
    hosts_.reach(host);
    if (hosts_.is_up(host) && job_.options.needs_prepare && !hosts_.at(host).is_prepared_now())
      hosts_.prepare(host);
  }
}

// ---------------------------------------------------------------- the end of a group

void GroupRestart::stop_if_due() {
  if (const Worker* dead = dead_member()) return stop_after_death(*dead);
  if (job_.finishing()) return pending_reason_.clear();  // the program comes to its end
  if (job_.agenda.hosts().empty() && pending_reason_.empty()) return;
  pending_reason_.clear();
  const std::vector<Host> next = next_group(true);
  const std::string changes = changes_text(present(), counts_of(next));
  if (changes.empty()) return;
  const auto wait = [&](const std::string& why) {
    pending_reason_ = fmt::format("the group is to restart ({}): {}", changes, why);
  };
  if (next.size() < least())
    wait(fmt::format("it would have {} of at least {} (--min-workers)", next.size(),
                     count_text(least(), "worker")));
  else if (!all_run())
    wait("the present one still starts");
  else if (!a_host_leaves() && job_.now() - edited_at_ < job_.options.change_settle)
    wait("more edits may follow (--change-settle)");
  else if (!a_host_leaves() && awaits_hosts(edited_at_))
    wait("other added hosts are being prepared");
  else
    stop(changes, has_lived() ? 0 : futile_, {});
}

void GroupRestart::stop_after_death(const Worker& dead) {
  if (dead.left_with_host)
    return stop(fmt::format("{} has left", dead.host), has_lived() ? 0 : futile_, {});
  const std::uint32_t futile = has_lived() ? 0 : futile_ + 1;
  const std::string why = fmt::format("worker {} on {} {}", dead.id, dead.host, dead.why);
  if (futile > job_.options.max_restarts)
    return job_.end(kExitNoProgress,
                    fmt::format("{} restarts of the group in a row and no group that lived for "
                                "{:.0f} s (--max-restarts): {}",
                                job_.options.max_restarts, seconds(kGroupLives), why));
  hosts_.note_death(dead.host, dead.id, dead.why, workers_.restart_budget(dead.host));
  // The first restart in a row is at once.
  stop(why, futile, futile > 1 ? retry_delay(futile - 1, job_.options.seed) : Duration{});
}

void GroupRestart::stop(std::string why, std::uint32_t futile, Duration delay) {
  job_.record(GroupStops{why, futile});
  job_.note(Note::kInfo, "group_stops",
            fmt::format("the group restarts: {}; its workers get TERM, and KILL after {:.0f} s "
                        "(--leave-timeout)",
                        why, seconds(job_.options.leave_timeout)));
  lost_time_.group_stops();
  stopped_at_ = job_.now();
  not_before_ = job_.now() + delay;
  for (const WorkerId id : alive()) {
    const Worker& w = *workers_.find(id);
    if (may_run(w.state))
      job_.add(Stop{{Role::kWorker, id.value}, w.host, job_.options.leave_timeout});
  }
}

void GroupRestart::processes_lost(const Host& host) {
  std::erase_if(former_, [&](const auto& one) { return one.second == host; });
}

void GroupRestart::attached(const Host& host, const std::vector<ProcessReport>& there) {
  if (!job_.restarts_group()) return;
  std::erase_if(former_, [&](const auto& one) { return one.second == host; });
  for (const ProcessReport& p : there) {
    const WorkerId id(p.process.id);
    if (p.process.role != Role::kWorker || p.exit) continue;
    const Worker* w = workers_.find(id);
    if (!w || w->state == WorkerState::kGone) former_[id] = host;
  }
}

void GroupRestart::ended(WorkerId worker) {
  const auto was = former_.find(worker);
  if (was == former_.end()) return;
  job_.agenda.add(was->second);
  former_.erase(was);
}

void GroupRestart::give_up_unkillable() {
  if (job_.now() - stopped_at_ < job_.options.leave_timeout + job_.options.stop_grace) return;
  for (const WorkerId id : alive()) {
    const Host host = workers_.find(id)->host;
    if (!hosts_.is_heard(host)) continue;  // it is lost or comes back
    job_.note(Note::kFailure, "worker_unkillable",
              fmt::format("worker {} on {} does not end, not even by KILL: the next group begins "
                          "without {}",
                          id, host, host),
              host, id);
    former_[id] = host;
    lost_.insert(host);
    workers_.fence(id, "it does not end, not even by KILL");
  }
}

// ---------------------------------------------------------------- the begin of a group

void GroupRestart::begin_if_due() {
  for (const WorkerId id : alive()) {
    const Worker& w = *workers_.find(id);
    if (!may_run(w.state) && !w.maybe_started) workers_.gone(id, {}, "the group restarts");
  }
  const auto wait = [this](const std::string& why) {
    pending_reason_ = fmt::format("the group restarts ({}): {}", why_, why);
  };
  if (const auto left = alive(); !left.empty())
    return wait(fmt::format("not ended yet: {}", workers_text(left)));
  if (ends_without_hosts()) return;
  const std::vector<Host> next = next_group(false);
  const bool are_too_few = next.size() < least();
  if (!are_too_few) below_least_since_.reset();
  if (awaits_hosts(stopped_at_)) {
    wait("hosts are being prepared");
  } else if (are_too_few) {
    if (!below_least_since_) below_least_since_ = job_.now();
    wait(fmt::format("it has a host for {} of at least {} (--min-workers)", next.size(),
                     count_text(least(), "worker")));
  } else if (job_.is_doubtful) {
    wait("the folder's lock cannot be read");
  } else if (job_.now() < not_before_) {
    wait("it waits longer with each death");
  } else {
    begin_group(next);
  }
}

bool GroupRestart::ends_without_hosts() {
  const Membership& membership = workers_.membership();
  for (const Host& host : membership.hosts())
    if (membership.wanted(host) > 0 && !hosts_.is_given_up(host)) return false;
  if (membership.nobody_stays()) return false;  // Notices ends the job
  if (membership.has_anyone_departed() && workers_.first_death() == 0) {
    job_.end(kExitHostsGone, "every host has gone away: start the job again", Duration{});
    return true;
  }
  job_.end(workers_.first_death() == 0 ? 1 : workers_.first_death(),
           fmt::format("every host has used up its restarts (--max-restarts): {}", why_),
           Duration{});
  return true;
}

void GroupRestart::begin_group(const std::vector<Host>& next) {
  GroupBegan r;
  r.generation = job_.boundary.generation().next();
  r.first = workers_.membership().next_id();
  r.workers = next;
  r.began_ns = job_.wall_ns();
  add_lines(r);
  lost_time_.group_begins();
  job_.record(r);
  servers_.tell_commit();
  pending_reason_.clear();
  job_.note(Note::kCommit, "group_began",
            fmt::format("the group begins again with {}, restart {}",
                        count_text(next.size(), "worker"), job_.group_restarts),
            {}, {}, {{"restarts", job_.group_restarts}});
  for (Note& changed : change_notes(r)) job_.add(std::move(changed));
}

void GroupRestart::add_lines(GroupBegan& r) const {
  const auto add = [&](bool is_added, WorkerId worker, const Host& host) {
    r.log.push_back(job_.log_line(is_added, host, r.log.size()));
    r.changed.push_back(worker);
  };
  Counts more = counts_of(r.workers);  // than the log counts so far
  for (const auto& [id, host] : in_log_) {
    auto& count = more[host];
    if (count > 0)
      --count;
    else
      add(false, id, host);
  }
  // Of a host's workers the last ones are those that it had not before.
  Counts rest = counts_of(r.workers);
  for (std::uint32_t rank = 0; rank < r.workers.size(); ++rank) {
    const Host& host = r.workers[rank];
    if (rest[host]-- <= more[host]) add(true, WorkerId(r.first.value + rank), host);
  }
}

// ---------------------------------------------------------------- deadlines

void GroupRestart::tick() {
  if (!job_.restarts_group() || job_.ending) return;
  if (job_.group_stops) {
    give_up_unkillable();
    if (below_least_since_ && job_.now() - *below_least_since_ >= job_.options.min_workers_timeout)
      job_.end(kExitTooFewWorkers,
               fmt::format("{} for {:.0f} s (--min-workers-timeout)", pending_reason_,
                           seconds(job_.options.min_workers_timeout)));
    return;
  }
  if (workers_.membership().count(WorkerState::kStarting) == 0) return;
  std::optional<Time> first_ran;
  for (const WorkerId id : alive())
    if (const Worker& w = *workers_.find(id); w.state == WorkerState::kMember)
      first_ran = std::min(first_ran.value_or(w.since), w.since);
  for (const WorkerId id : alive()) {
    const Worker& w = *workers_.find(id);
    if (w.state != WorkerState::kStarting) continue;
    const bool is_late = job_.now() - w.since >= job_.options.start_timeout;
    const bool is_alone = first_ran && job_.now() - *first_ran >= kOthersRun;
    const std::string what = fmt::format("the process of worker {} on {} does not run", id, w.host);
    if (job_.group_restarts > 0 && (is_late || is_alone)) return leave_out(id, what);
    if (is_late)
      return job_.end(kExitStartTimeout, fmt::format("{} after {:.0f} s (--start-timeout)", what,
                                                     seconds(job_.options.start_timeout)));
  }
}

void GroupRestart::leave_out(WorkerId worker, const std::string& why) {
  const Host host = workers_.find(worker)->host;
  stop(why, futile_, {});
  former_[worker] = host;
  lost_.insert(host);
  workers_.fence(worker, why);
}

// ---------------------------------------------------------------- records

void GroupRestart::apply(const JobBegan& r) {
  for (std::uint32_t id = 0; id < r.workers.size(); ++id) in_log_[WorkerId(id)] = r.workers[id];
  began_at_ = job_.steady();
}

void GroupRestart::apply(const WorkerGone& r) {
  if (!r.log.empty()) in_log_.erase(r.worker);
}

void GroupRestart::apply(const GroupStops& r) {
  futile_ = r.futile;
  why_ = r.why;
}

void GroupRestart::apply(const GroupBegan& r) {
  in_log_.clear();
  WorkerId id = r.first;
  for (const Host& host : r.workers) {
    in_log_[id] = host;
    id = id.next();
  }
  began_at_ = job_.moment_of(r.began_ns);
  why_.clear();
  below_least_since_.reset();
}

// ---------------------------------------------------------------- questions

const Worker* GroupRestart::dead_member() const {
  if (!job_.boundary.has_lost_contributor()) return nullptr;
  for (const WorkerId id : job_.boundary.contributors()) {
    const Worker* w = workers_.find(id);
    if (w && w->state == WorkerState::kGone && !job_.clean_exits.contains(id)) return w;
  }
  return nullptr;
}

bool GroupRestart::all_run() const {
  return !job_.group_stops &&
         std::ranges::all_of(job_.boundary.contributors(), [this](WorkerId id) {
           const Worker* w = workers_.find(id);
           return w && (w->state == WorkerState::kMember || w->state == WorkerState::kGone);
         });
}

bool GroupRestart::a_host_leaves() const {
  return std::ranges::any_of(job_.boundary.members(), [this](WorkerId id) {
    return job_.leaving.contains(workers_.find(id)->host);
  });
}

bool GroupRestart::is_ready(const Host& host) const {
  return hosts_.is_heard(host) &&
         (!job_.options.needs_prepare || hosts_.at(host).is_prepared_now()) &&
         std::ranges::none_of(former_, [&](const auto& one) { return one.second == host; });
}

bool GroupRestart::awaits_hosts(Time since) const {
  if (job_.now() - since >= kSwapWait) return false;
  const Membership& membership = workers_.membership();
  return std::ranges::any_of(membership.hosts(), [&](const Host& host) {
    return membership.wanted(host) > 0 && !hosts_.is_given_up(host) && !is_ready(host) &&
           hosts_.at(host).attempts == 0 && !lost_.contains(host);
  });
}

std::vector<Host> GroupRestart::next_group(bool may_wait) const {
  const Membership& membership = workers_.membership();
  const Counts had = present();
  std::vector<Host> next;
  std::set<Host> seen;
  const auto add = [&](const Host& host) {
    if (!seen.insert(host).second || hosts_.is_given_up(host)) return;
    std::uint32_t count = membership.wanted(host);
    if (!is_ready(host)) count = may_wait ? std::min(count, value_in(had, host)) : 0;
    next.insert(next.end(), count, host);
  };
  for (const WorkerId id : job_.boundary.members()) add(workers_.find(id)->host);
  for (const HostSlots& line : membership.file()) add(line.host);
  for (const Host& host : membership.hosts()) add(host);
  return next;
}

GroupRestart::Counts GroupRestart::present() const {
  Counts out;
  for (const WorkerId id : job_.boundary.members()) ++out[workers_.find(id)->host];
  return out;
}

std::vector<WorkerId> GroupRestart::alive() const {
  std::vector<WorkerId> out;
  for (const auto& [id, w] : workers_.membership().workers())
    if (w.state != WorkerState::kGone) out.push_back(id);
  return out;
}

}  // namespace dt
