#include "core/job/views.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/quantity.h"
#include "core/job/notes.h"
#include "core/protocol/exit_code.h"

namespace dt {
void Views::shrink() {
  if (job_.ending || job_.initial() || !job_.boundary.has_lost_contributor()) return;
  std::vector<WorkerId> live;
  for (const WorkerId id : job_.boundary.contributors()) {
    const Worker* w = workers_.find(id);
    if (w && w->state == WorkerState::kMember) live.push_back(id);
  }
  if (live.size() == job_.boundary.contributors().size()) return;
  if (job_.finishing() && live.empty()) return;
  Committed c;
  c.generation = job_.boundary.generation().next();
  c.boundary = false;
  c.epoch = *job_.boundary.epoch();
  c.members = job_.boundary.members();
  c.contributors = live;
  job_.record(c);
  lost_time_.shrunk(live.empty());
  servers_.tell_commit();
  if (!live.empty()) {
    for (const WorkerId id : live)
      job_.add(
          SendToWorker<Shrunk>{id, workers_.find(id)->host, Shrunk{c.generation, live.front()}});
    // At the end members leave one after the other: that needs no note.
    if (!job_.finishing())
      job_.note(Note::kCommit, "shrunk",
                fmt::format("epoch {} goes on with {}", c.epoch, workers_text(live)));
  } else {
    job_.note(Note::kCommit, "nobody_left",
              fmt::format("no member is alive; epoch {} starts again with the first worker that is "
                          "ready",
                          c.epoch));
  }
}

void Views::cross_boundary() {
  if (job_.ending) return;
  if (const auto odd = job_.boundary.odd_one()) {
    const Worker* w = workers_.find(*odd);
    job_.end(
        1, fmt::format("worker {} on {} begins with epoch {}, another with {}: start all with the "
                       "same epoch",
                       *odd, w->host, job_.boundary.arrivals().at(*odd),
                       job_.boundary.arrivals().begin()->second));
    return;
  }
  pending_reason_.clear();
  awaits_arrivals_ = false;
  std::optional<Epoch> next = job_.boundary.complete();
  const bool nobody = job_.boundary.contributors().empty();
  if (nobody && !job_.initial()) next = job_.boundary.returns_to().value_or(*job_.boundary.epoch());
  if (!next) {
    awaits_arrivals_ = !job_.boundary.arrivals().empty() && job_.boundary.is_anyone_missing();
    return;
  }
  Plan plan;
  if (!job_.finishing())
    plan =
        workers_.membership().plan(job_.boundary.contributors(), job_.now(), hosts_.unreachable());
  pending_reason_ = plan.reason;
  if (waits_for_end(plan) || waits_for_more(plan, *next)) return;
  if (nobody && plan.joins.empty()) return;
  if (job_.finishing() && nobody) return;
  if (!servers_.all_listen()) return;
  commit(*next, plan);
}

std::string Views::pending_reason() const {
  if (!awaits_arrivals_) return pending_reason_;
  const auto missing = job_.boundary.missing();
  return fmt::format("{} {} not come to it", workers_text(missing),
                     missing.size() == 1 ? "has" : "have");
}

bool Views::waits_for_end(const Plan& plan) {
  for (const WorkerId id : job_.boundary.contributors()) {
    const Worker* w = workers_.find(id);
    if (!w || !job_.stops(w->host) || std::ranges::count(plan.leaves, id) > 0) continue;
    pending_reason_ =
        fmt::format("worker {} on {} is being stopped: its host goes away", id, w->host);
    return true;
  }
  return false;
}

bool Views::waits_for_more(const Plan& plan, Epoch next) {
  if (job_.initial() || job_.finishing()) return false;
  const std::size_t least = job_.options.limits.least;
  const std::size_t members =
      job_.boundary.contributors().size() + plan.joins.size() - plan.leaves.size();
  if (members >= least) return false;
  pending_reason_ =
      fmt::format("it has {} of at least {} (--min-workers)", members, count_text(least, "worker"));
  if (job_.boundary.below_least_since()) return true;
  job_.boundary.waits_for_members(job_.now());
  job_.note(Note::kFailure, "below_min_workers",
            fmt::format("epoch {} waits: {}; the job ends if that lasts {:.0f} s "
                        "(--min-workers-timeout)",
                        next, pending_reason_, seconds(job_.options.min_workers_timeout)));
  return true;
}

void Views::check_least() {
  if (job_.ending || job_.finishing() || !job_.boundary.below_least_since()) return;
  if (job_.now() - *job_.boundary.below_least_since() < job_.options.min_workers_timeout) return;
  lost_time_.end_at_boundary();
  job_.end(kExitTooFewWorkers,
           fmt::format("{} for {:.0f} s (--min-workers-timeout)", pending_reason_,
                       seconds(job_.options.min_workers_timeout)));
}

void Views::commit(Epoch epoch, const Plan& plan) {
  const bool saves = servers_.saves_at(epoch);
  const bool new_view = !plan.joins.empty() || !plan.leaves.empty() ||
                        job_.boundary.members() != job_.boundary.contributors();
  for (const auto& [id, e] : job_.boundary.arrivals()) job_.boundary.await_release(id);
  if (job_.boundary.returns_to())
    lost_time_.recovery_is_complete();
  else
    lost_time_.boundary_complete(!plan.joins.empty()    ? "join"
                                 : !plan.leaves.empty() ? "leave"
                                                        : "boundary");
  if (!new_view && !saves) {
    job_.record(EpochBegan{epoch});
    return;
  }
  const Committed c = committed(epoch, plan, saves);
  for (const WorkerId id : plan.joins) job_.boundary.await_release(id);
  // Base workers become members at the first boundary whether or not it changes the view.
  job_.record(c);
  servers_.tell_commit();
  if (new_view) note_committed(c, plan);  // otherwise there is nothing to note
}

Committed Views::committed(Epoch epoch, const Plan& plan, bool saves) const {
  Committed c;
  c.generation = job_.boundary.generation().next();
  c.boundary = true;
  c.epoch = epoch;
  const std::set<WorkerId> leave(plan.leaves.begin(), plan.leaves.end());
  for (const WorkerId id : job_.boundary.contributors())
    if (!leave.contains(id)) c.members.push_back(id);
  for (const WorkerId id : plan.joins) {
    c.members.push_back(id);
    c.log.push_back(job_.log_line(true, workers_.find(id)->host, c.log.size()));
  }
  c.contributors = c.members;
  c.leavers = plan.leaves;
  c.saves = saves;
  return c;
}

void Views::note_committed(const Committed& c, const Plan& plan) {
  std::string text =
      fmt::format("epoch {} begins with {}", c.epoch, count_text(c.members.size(), "worker"));
  std::string_view before = ": ";
  const auto add = [&](const std::vector<WorkerId>& ids, std::string_view have) {
    if (ids.empty()) return;
    const Worker* only = ids.size() == 1 ? workers_.find(ids.front()) : nullptr;
    text += fmt::format("{}{}{} {} {}", before, workers_text(ids),
                        only ? fmt::format(" ({})", only->host) : "", only ? "has" : "have", have);
    before = ", ";
  };
  add(plan.joins, "joined");
  add(plan.leaves, "left");
  job_.note(Note::kCommit, "committed", text);
  for (Note& added : change_notes(c)) job_.add(std::move(added));
}

void Views::release() {
  if (job_.ending || job_.boundary.unreleased().empty() || job_.initial()) return;
  if (!servers_.all_acked()) return;
  for (const WorkerId id : std::set(job_.boundary.unreleased())) {
    const Worker* w = workers_.find(id);
    if (w && !hosts_.is_up(w->host)) continue;
    if (w && w->state != WorkerState::kLeaving && job_.stops(w->host)) continue;  // it ends
    job_.boundary.released(id);
    const auto release = w ? release_of(*w) : std::nullopt;
    if (!release) continue;
    workers_.greeted(id);
    lost_time_.released(id);
    job_.add(SendToWorker<Release>{id, w->host, *release});
  }
  if (job_.boundary.has_returned())
    lost_time_.epoch_began_again(servers_.why(), servers_.interrupted());
  lost_time_.report();
}

std::optional<Release> Views::release_of(const Worker& worker) const {
  Release r;
  r.generation = job_.boundary.generation();
  r.world_size = static_cast<std::uint32_t>(job_.boundary.members().size());
  r.epoch = *job_.boundary.epoch();
  if (job_.boundary.has_returned()) r.verdict = Verdict::kRollback;
  if (worker.state == WorkerState::kLeaving) {
    r.verdict = Verdict::kLeave;
    return r;
  }
  const auto rank = job_.boundary.rank_of(worker.id);
  if (!rank || worker.state != WorkerState::kMember) return std::nullopt;
  r.rank = *rank;
  r.newcomer = !worker.base && !worker.greeted;
  return r;
}

void Views::apply(const Committed& r) {
  if (r.boundary) {
    if (!job_.boundary.returns_to() && job_.boundary.epoch() != r.epoch)
      job_.futile.epoch_completed();
    job_.futile.epoch_begins(r.epoch);
  }
  job_.boundary.commit(r);
  job_.log_lines += r.log.size();
  job_.opened = true;
}

void Views::apply(const EpochBegan& r) {
  if (!job_.boundary.returns_to()) job_.futile.epoch_completed();
  job_.futile.epoch_begins(r.epoch);
  job_.boundary.begin_epoch(r.epoch);
  job_.opened = true;
}

void Views::apply(const RolledBack& r) {
  job_.boundary.roll_back(r.generation, r.epoch);
  // All but leavers arrive again; newcomers once they have the new servers' values.
  for (const WorkerId id : std::set(job_.boundary.unreleased())) {
    const Worker* w = workers_.find(id);
    if (!w || w->state != WorkerState::kLeaving) job_.boundary.released(id);
  }
}

}  // namespace dt
