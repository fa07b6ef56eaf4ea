#include <algorithm>
#include <set>

#include "core/job/job.h"
#include "core/job/job_text.h"
#include "core/job/notes.h"
#include "core/protocol/exit_code.h"

namespace dt {

void Job::settle() {
  // Each pass may enable the next one; every pass that changes something appends a record or sends
  // something once, so this ends.
  if (job_.initial() && worker_code_ != 0) job_.end(worker_code_, worker_why_);
  end_if_futile();
  servers_.reach_hosts();
  decide_exits();
  stop_unwanted();
  fill_gaps();
  move_newcomers();
  shrink_if_someone_died();
  cross_boundary();
  if (lost_time_.has_open_death() && (job_.finishing() || servers_.all_acked()))
    lost_time_.death_is_known();
  release();
  let_hosts_go();
  end_if_over();
}

void Job::decide_exits() {
  if (job_.ending || !job_.exits.any() || job_.boundary.arrivals().empty()) return;
  const auto undecided = job_.exits.undecided();
  if (job_.initial()) {
    const auto& [id, host] = *undecided.begin();
    return job_.end(
        1, fmt::format("worker {} on {} ended with exit code 0 before its first epoch, and "
                       "others wait for it there",
                       id, host));
  }
  for (const auto& [id, host] : undecided) {
    const bool was_wanted = membership_.present(host) < membership_.wanted(host);
    MemberLeft left{id, host, was_wanted, {job_.log_line(false, host)}};
    auto notes = change_notes(left);
    job_.out.record(std::move(left));
    for (Note& removed : notes) job_.out.add(std::move(removed));
    if (!was_wanted) continue;
    job_.out.note(Note::Kind::kRefusal, "worker_exited",
                  fmt::format("worker {} on {} ended with exit code 0 while others go on; {}", id,
                              host, stays_empty(host)),
                  id, host);
  }
}

void Job::stop_unwanted() {
  if (job_.ending) return;
  std::set<WorkerId> unwanted;
  for (const WorkerId id : membership_.unwanted_newcomers()) unwanted.insert(id);
  // What was to start on a host that is given up would be waited for without end.
  for (const auto& [id, w] : membership_.workers())
    if (on_the_way(w.state) && !may_run(w.state) && hosts_.is_given_up(w.host)) unwanted.insert(id);
  for (const WorkerId id : unwanted) {
    const Worker* w = membership_.find(id);
    if (w->base && job_.initial()) continue;
    if (w->maybe_started) continue;  // its agent has to be asked first
    const Host host = w->host;
    const char* why = hosts_.is_given_up(host) ? "its host is given up" : "no longer wanted";
    job_.out.note(Note::Kind::kInfo, "newcomer_stopped",
                  fmt::format("the newcomer worker {} on {} is stopped: {}", id, host, why), id,
                  host);
    if (may_run(w->state)) {
      membership_.advance(id, WorkerEvent::kUnwanted, job_.now());
      job_.out.add(Stop{{Role::kWorker, id.value}, host, job_.options.stop_grace});
    } else {
      worker_gone(id, ExitStatus{}, why);
    }
  }
}

void Job::fill_gaps() {
  // During the start newcomers may already warm up, once the command is known to be elastic.
  if (job_.ending || job_.finishing() || !job_.opened) return;
  for (const Host& host : membership_.hosts()) {
    if (!hosts_.usable(host)) continue;
    std::uint32_t there = membership_.present(host);
    const std::uint32_t wanted = membership_.wanted(host);
    for (; there < wanted; ++there) {
      const Edit edit =
          membership_.base_count(host) == wanted ? Edit{} : membership_.added_by(host);
      job_.out.record(WorkerAllotted{membership_.next_id(), host, edit});
    }
  }
}

void Job::move_newcomers() {
  if (job_.ending) return;
  std::vector<WorkerId> todo;
  for (const auto& [id, w] : membership_.workers())
    if (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing) todo.push_back(id);
  for (const WorkerId id : todo) {
    const Worker& w = *membership_.find(id);
    const Host host = w.host;
    if (!hosts_.usable(host)) continue;
    if (w.state == WorkerState::kSeen)
      membership_.advance(id, WorkerEvent::kHostChosen, job_.now());
    hosts_.reach(host);
    if (!hosts_.is_up(host)) continue;
    if (job_.options.needs_prepare && !hosts_.at(host).prepared) {
      hosts_.prepare(host);
      continue;
    }
    if (w.base && job_.initial() && !hosts_.knows_ports()) {  // they are in its environment
      hosts_.reach_first();
      continue;
    }
    if (!membership_.advance(id, WorkerEvent::kStartSent, job_.now())) continue;
    StartWorker start;
    start.worker = id;
    start.host = host;
    start.newcomer = !(w.base && job_.initial());
    const auto rank = job_.boundary.rank_of(id);
    const auto size = static_cast<std::uint32_t>(job_.boundary.members().size());
    start.rank = rank.value_or(Rank(size));
    start.world_size = rank ? size : size + 1;
    start.epoch = job_.boundary.epoch() ? job_.boundary.epoch()->next() : Epoch(0);
    job_.out.note(Note::Kind::kLaunch, "worker_launched",
                  fmt::format("Launching worker node at ip: {}", host.name), id, host);
    job_.out.add(start);
    if (servers_.all_listen()) job_.out.add(TellServers{id, host, servers_.list()});
  }
}

void Job::shrink_if_someone_died() {
  if (job_.ending || job_.initial()) return;
  std::vector<WorkerId> live;
  for (const WorkerId id : job_.boundary.contributors()) {
    const Worker* w = membership_.find(id);
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
  job_.out.record(c);
  lost_time_.shrunk(live.empty());
  servers_.tell_commit();
  if (!live.empty()) {
    for (const WorkerId id : live)
      job_.out.add(TellShrunk{id, membership_.find(id)->host, Shrunk{c.generation, live.front()}});
    // At the end one after the other leaves: that is no news.
    if (!job_.finishing())
      job_.out.note(Note::Kind::kCommit, "shrunk",
                    fmt::format("generation {}: epoch {} goes on with worker(s) {}", c.generation,
                                c.epoch, join_ids(live)));
  } else {
    job_.out.note(
        Note::Kind::kCommit, "nobody_left",
        fmt::format("generation {}: no member is alive; epoch {} starts again with the first "
                    "worker that is ready",
                    c.generation, c.epoch));
  }
}

void Job::cross_boundary() {
  if (job_.ending) return;
  if (const auto odd = job_.boundary.odd_one()) {
    const Worker* w = membership_.find(*odd);
    job_.end(
        1, fmt::format("worker {} on {} begins with epoch {}, another with {}: start all with the "
                       "same epoch",
                       *odd, w->host, job_.boundary.arrivals().at(*odd),
                       job_.boundary.arrivals().begin()->second));
    return;
  }
  pending_reason_.clear();
  std::optional<Epoch> next = job_.boundary.complete();
  const bool nobody = job_.boundary.contributors().empty();
  if (nobody && !job_.initial()) next = job_.boundary.returns_to().value_or(*job_.boundary.epoch());
  if (!next) {
    if (!job_.boundary.arrivals().empty() && !job_.boundary.missing().empty())
      pending_reason_ =
          fmt::format("the boundary waits for worker(s) {}", join_ids(job_.boundary.missing()));
    return;
  }
  Plan plan;
  if (!job_.finishing())
    plan = membership_.plan(job_.boundary.contributors(), job_.now(), hosts_.unreachable());
  pending_reason_ = plan.reason;
  if (waits_for_more(plan, *next)) return;
  if (nobody && plan.joins.empty()) return;
  if (job_.finishing() && nobody) return;
  if (!servers_.all_listen()) return;
  commit(*next, plan);
}

bool Job::waits_for_more(const Plan& plan, Epoch next) {
  if (job_.initial() || job_.finishing()) return false;
  const std::size_t least = job_.options.limits.least;
  const std::size_t members =
      job_.boundary.contributors().size() + plan.joins.size() - plan.leaves.size();
  if (members >= least) return false;
  pending_reason_ =
      fmt::format("{} of at least {} worker(s) are there (--min-workers)", members, least);
  if (job_.boundary.below_least_since()) return true;
  job_.boundary.waits_for_members(job_.now());
  job_.out.note(Note::Kind::kFailure, "below_min_workers",
                fmt::format("epoch {} waits: {}; the job ends if that lasts {:.0f} s "
                            "(--min-workers-timeout)",
                            next, pending_reason_, seconds(job_.options.min_workers_timeout)));
  return true;
}

void Job::commit(Epoch epoch, const Plan& plan) {
  const bool saves = !servers_.all().empty() && saver_.saves_at(epoch);
  const bool new_view = !plan.joins.empty() || !plan.leaves.empty() ||
                        job_.boundary.members() != job_.boundary.contributors();
  for (const auto& [id, e] : job_.boundary.arrivals()) job_.boundary.await_release(id);
  const bool returns = job_.boundary.returns_to().has_value();
  if (returns)
    lost_time_.recovery_is_complete();
  else
    lost_time_.boundary_complete(!plan.joins.empty()    ? "join"
                                 : !plan.leaves.empty() ? "leave"
                                                        : "boundary");
  if (!new_view && !saves) {
    job_.out.record(EpochBegan{epoch});
    return;
  }
  Committed c;
  c.generation = job_.boundary.generation().next();
  c.boundary = true;
  c.epoch = epoch;
  for (const WorkerId id : job_.boundary.contributors())
    if (std::find(plan.leaves.begin(), plan.leaves.end(), id) == plan.leaves.end())
      c.members.push_back(id);
  for (const WorkerId id : plan.joins) {
    c.members.push_back(id);
    LogLine line = job_.log_line(true, membership_.find(id)->host);
    line.seq += c.log.size();
    c.log.push_back(std::move(line));
    job_.boundary.await_release(id);
  }
  c.contributors = c.members;
  c.leavers = plan.leaves;
  c.saves = saves;
  // Base workers become members at the first boundary whether or not it changes the view.
  job_.out.record(c);
  servers_.tell_commit();
  if (!new_view) return;  // it is no news to people
  std::string text = fmt::format("generation {}: epoch {} begins with {} worker(s)", c.generation,
                                 c.epoch, c.members.size());
  if (!plan.joins.empty()) text += fmt::format(", joined: {}", join_ids(plan.joins));
  if (!plan.leaves.empty()) text += fmt::format(", leaving: {}", join_ids(plan.leaves));
  job_.out.note(Note::Kind::kCommit, "committed", text);
  for (Note& added : change_notes(c)) job_.out.add(std::move(added));
}

void Job::release() {
  if (job_.ending || job_.boundary.unreleased().empty() || job_.initial()) return;
  if (!servers_.all_acked()) return;
  for (const WorkerId id : std::set(job_.boundary.unreleased())) {
    Worker* w = membership_.find(id);
    if (w && !hosts_.is_up(w->host)) continue;
    job_.boundary.released(id);
    if (!w) continue;
    Release r;
    r.generation = job_.boundary.generation();
    r.world_size = static_cast<std::uint32_t>(job_.boundary.members().size());
    r.epoch = *job_.boundary.epoch();
    if (job_.boundary.has_returned()) r.verdict = Verdict::kRollback;
    if (w->state == WorkerState::kLeaving) {
      r.verdict = Verdict::kLeave;
    } else if (const auto rank = job_.boundary.rank_of(id);
               rank && w->state == WorkerState::kMember) {
      r.rank = *rank;
      r.newcomer = !w->base && !w->greeted;
    } else {
      continue;
    }
    w->greeted = true;
    lost_time_.released(id);
    job_.out.add(TellRelease{id, w->host, r});
  }
  if (job_.boundary.has_returned())
    lost_time_.epoch_began_again(servers_.why(), servers_.interrupted());
  lost_time_.report();
}

void Job::let_hosts_go() {
  if (job_.ending) return;
  std::vector<Host> unused;
  for (const auto& [host, h] : hosts_.all()) {
    if (h.link != HostTable::Link::kUp && h.link != HostTable::Link::kDown) continue;
    if (membership_.wanted(host) > 0) continue;
    const bool used =
        std::any_of(membership_.workers().begin(), membership_.workers().end(),
                    [&host = host](const auto& w) {
                      return w.second.host == host && w.second.state != WorkerState::kGone;
                    }) ||
        servers_.serves(host);
    if (!used) unused.push_back(host);
  }
  for (const Host& host : unused) hosts_.let_go(host);
}

bool Job::anyone_runs() const {
  return std::any_of(membership_.workers().begin(), membership_.workers().end(),
                     [](const auto& w) { return w.second.state != WorkerState::kGone; });
}

void Job::end_if_futile() {
  if (job_.ending || job_.finishing() || job_.initial()) return;
  if (job_.futile.rollbacks() > futile_limit())
    return job_.end(kExitNoProgress,
                    fmt::format("{} times servers were lost and no new epoch began between them "
                                "(--max-futile-restarts): {}",
                                futile_limit(), servers_.why()));
  if (job_.futile.count() <= futile_limit()) return;
  job_.end(
      kExitNoProgress,
      fmt::format("{} restarts and no epoch completed between them (--max-futile-restarts): {}",
                  futile_limit(), job_.futile.why()));
}

void Job::end_if_over() {
  if (job_.ending) return;
  const auto& all = job_.boundary.contributors();
  const bool all_gone = std::all_of(all.begin(), all.end(), [this](WorkerId id) {
    const Worker* w = membership_.find(id);
    return !w || w->state == WorkerState::kGone;
  });
  const bool someone_leaves =
      std::any_of(membership_.workers().begin(), membership_.workers().end(), [](const auto& w) {
        return w.second.state == WorkerState::kLeaving || w.second.state == WorkerState::kStopping;
      });
  if (job_.finishing() && all_gone && !someone_leaves) {
    Time last{};
    for (const auto& [id, w] : membership_.workers()) last = std::max(last, w.since);
    if (servers_.awaits_opaque(last)) return;
    job_.end(
        worker_code_,
        worker_code_ == 0 ? std::string("the job has finished") : "the job failed: " + worker_why_,
        anyone_runs() ? job_.options.stop_grace : Duration{});
    return;
  }
  if (job_.finishing() || job_.initial() || anyone_runs()) return;
  // Nobody is left. Somebody may come again only from a host that is not given up.
  for (const Host& host : membership_.hosts()) {
    if (membership_.wanted(host) > 0 && !hosts_.is_given_up(host)) return;
  }
  job_.end(death_code_ == 0 ? 1 : death_code_,
           "no worker is left and every host has used up its restarts", Duration{});
}

}  // namespace dt
