#include "core/job/job.h"

#include <algorithm>

#include "core/job/job_text.h"

namespace dt {

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : job_(std::move(options), [this](const Record& r) { apply(r); }),
      membership_(job_.options.limits) {
  job_.out.begin(now);
  for (const Record& r : records) replay(r);
  std::vector<WorkerId> ids;
  for (const auto& [id, w] : membership_.workers()) ids.push_back(id);
  for (const WorkerId id : ids) {
    Worker* w = membership_.find(id);
    w->maybe_started = hosts_.row(w->host).has_agent();
  }
  servers_.replayed();
}

std::vector<Effect> Job::begin(Term term, Instant now) {
  job_.out.begin(now);
  const bool fresh = job_.boundary.generation() == Generation(0);
  if (fresh) job_.out.record(JobBegan{job_.options.workers, job_.options.servers});
  job_.out.record(TermBegan{term});
  if (job_.ending) {
    hosts_.reach_agents();
    job_.out.add(End{job_.ending->exit_code, job_.ending->message, job_.options.stop_grace});
    return job_.out.take();
  }
  servers_.begin(term, !fresh);
  lost_time_.begin(!fresh);
  std::set<Host> needed;
  for (const auto& [id, w] : membership_.workers())
    if (w.state != WorkerState::kGone) needed.insert(w.host);
  needed.merge(servers_.hosts());
  hosts_.begin(needed);
  settle();
  return job_.out.take();
}

std::vector<Effect> Job::step(const JobEvent& event, Instant now) {
  job_.out.begin(now);
  if (!job_.ending) {
    std::visit([this](const auto& e) { on(e); }, event);
    settle();
  }
  return job_.out.take();
}

void Job::replay(const Record& r) {
  apply(r);
  for (Note& told : change_notes(r)) {
    const auto rank = job_.boundary.rank_of(*told.worker);
    past_changes_.push_back(
        {std::move(told), job_.boundary.generation(), job_.boundary.epoch(), rank});
  }
}

void Job::apply(const Record& r) {
  std::visit([this](const auto& one) { apply_one(one); }, r);
}

void Job::apply_one(const JobBegan& r) {
  membership_.begin(r.workers, job_.now());
  std::vector<WorkerId> members;
  for (const auto& [id, w] : membership_.workers()) members.push_back(id);
  job_.boundary.begin(members);
  servers_.apply(r);
}

void Job::apply_one(const TermBegan&) {}

void Job::apply_one(const FileTaken& r) {
  std::map<Host, std::uint32_t> before;
  for (const auto& [host, h] : hosts_.all()) before[host] = membership_.wanted(host);
  membership_.take_file(r.edit, r.hosts, job_.now());
  // A host that was wanted less starts with a clean sheet when it is wanted again.
  for (const auto& [host, count] : before)
    if (membership_.wanted(host) < count) hosts_.wanted_less(host);
}

void Job::apply_one(const WorkerAllotted& r) {
  membership_.add_worker(r.worker, r.host, r.edit, job_.now());
}

void Job::apply_one(const HostPrepared& r) { hosts_.apply(r); }

void Job::apply_one(const Committed& r) {
  for (const WorkerId id : r.members) {
    if (membership_.advance(id, WorkerEvent::kCommitted, job_.now()))
      hosts_.member_joined(membership_.find(id)->host);
  }
  for (const WorkerId id : r.leavers) membership_.advance(id, WorkerEvent::kRemoved, job_.now());
  if (r.boundary) {
    if (!job_.boundary.returns_to() && job_.boundary.epoch() != r.epoch)
      job_.futile.epoch_completed();
    epoch_begins(r.epoch);
    saver_.apply(r);
    new_view();
    membership_.swaps_done(r.members, r.leavers);
    job_.boundary.begin_epoch(r.generation, r.epoch, r.members, r.contributors);
    forget_past();
  } else {
    job_.boundary.shrink(r.generation, r.contributors);
  }
  job_.log_lines += r.log.size();
  job_.opened = true;
}

void Job::apply_one(const EpochBegan& r) {
  // A base worker that took part in the first boundary was a member from the start.
  for (const WorkerId id : job_.boundary.contributors()) {
    if (const Worker* w = membership_.find(id))
      membership_.advance(id, WorkerEvent::kCommitted, w->since);
  }
  if (!job_.boundary.returns_to()) job_.futile.epoch_completed();
  epoch_begins(r.epoch);
  new_view();
  saver_.apply(r);
  job_.boundary.begin_epoch(r.epoch);
  forget_past();
  job_.opened = true;
}

void Job::forget_past() {
  membership_.forget_gone(job_.boundary.members(), job_.now());
  std::erase_if(leave_enforced_, [this](WorkerId id) { return !membership_.find(id); });
}

void Job::epoch_begins(Epoch epoch) {
  stalls_.clear();
  job_.futile.epoch_begins(epoch);
}

void Job::new_view() {
  waiting_since_.reset();
  if (job_.finishing()) return;
  worker_code_ = 0;  // those who died earlier are no members of this view
  worker_why_.clear();
}

void Job::apply_one(const WorkerGone& r) {
  Worker* w = membership_.find(r.worker);
  if (!w) return;
  const bool contributes =
      std::find(job_.boundary.contributors().begin(), job_.boundary.contributors().end(),
                r.worker) != job_.boundary.contributors().end();
  // A member that ends well without having been told to leave has come to its program's end.
  if (contributes && r.status.clean() && r.why.empty()) job_.exits.ended(r.worker, w->host);
  if (contributes && !r.status.clean()) {
    if (death_code_ == 0) death_code_ = r.status.shell_code();
    if (!job_.finishing() && !job_.initial()) {
      hosts_.member_died(w->host, r.log.empty() ? job_.out.now().wall_ns : r.log.front().wall_ns,
                         restart_budget(w->host));
      job_.futile.add(fmt::format("worker {} on {}: {}", w->id, w->host,
                                  r.why.empty() ? to_string(r.status) : r.why));
    }
    if (worker_code_ == 0) {
      worker_code_ = r.status.shell_code();
      worker_why_ = fmt::format("worker {} on {} ended{}: {}", w->id, w->host,
                                job_.initial() ? " before its first epoch" : "",
                                r.why.empty() ? to_string(r.status) : r.why);
    }
  }
  membership_.advance(r.worker, WorkerEvent::kEnded, job_.now());
  w->why = r.why.empty() ? to_string(r.status) : r.why;
  job_.boundary.forget(r.worker);
  lost_time_.gone(r.worker);
  hang_watch_.forget(r.worker);
  hosts_.liveness().forget(r.worker);
  stalls_.doing(r.worker);
  job_.log_lines += r.log.size();
}

void Job::apply_one(const MemberLeft& r) {
  job_.exits.left(r.worker);
  job_.log_lines += r.log.size();
  if (!r.empties_place) return;
  membership_.empty_place(r.host);
  hosts_.member_left(
      r.host, fmt::format("worker {} ended with exit code 0 while others went on: {}", r.worker,
                          stays_empty(r.host)));
}

void Job::apply_one(const PlacesWanted& r) {
  membership_.fill_places(r.host, r.count);
  hosts_.places_wanted(r.host);
}

void Job::apply_one(const AgentKnown& r) { hosts_.apply(r); }

void Job::apply_one(const AgentPlaced& r) { hosts_.apply(r); }

void Job::apply_one(const JobEnding& r) { job_.ending = r; }

void Job::apply_one(const CheckpointTaken& r) { saver_.apply(r); }

void Job::apply_one(const CheckpointTimed& r) { saver_.apply(r); }

void Job::apply_one(const TimeSpent& r) { lost_time_.apply(r); }

void Job::apply_one(const RolledBack& r) {
  servers_.apply(r);
  saver_.apply(r);
  job_.boundary.roll_back(r.generation, r.epoch);
  hang_watch_.forget_servers();
  stalls_.clear();
  waiting_since_.reset();
  // Everybody comes anew, but who is to leave; newcomers once they have the new servers' values.
  for (const WorkerId id : std::set(job_.boundary.unreleased())) {
    const Worker* w = membership_.find(id);
    if (!w || w->state != WorkerState::kLeaving) job_.boundary.released(id);
  }
  for (const auto& [id, w] : membership_.workers())
    membership_.advance(id, WorkerEvent::kServersReplaced, job_.now());
}

// ---------------------------------------------------------------- small things

std::string Job::stays_empty(const Host& host) const {
  if (!job_.options.is_elastic) return "its place stays empty";
  return fmt::format("its place stays empty until its line is written again, or: dtctl add {}",
                     host);
}

std::string_view Job::phase() const {
  if (job_.ending) return "ended";
  if (job_.finishing()) return "finishing";
  return job_.initial() ? "starting" : "running";
}

}  // namespace dt
