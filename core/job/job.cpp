#include "core/job/job.h"

#include <algorithm>

#include "core/job/job_text.h"

namespace dt {

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : job_(std::move(options), [this](const Record& r) { apply(r); }),
      membership_(job_.options.limits),
      server_watch_(job_.options.server_dead_after),
      checkpoints_({job_.options.checkpoint_every, job_.options.checkpoint_interval,
                    job_.options.keep_checkpoints}) {
  job_.out.begin(now);
  for (const Record& r : records) replay(r);
  std::vector<WorkerId> ids;
  for (const auto& [id, w] : membership_.workers()) ids.push_back(id);
  for (const WorkerId id : ids) {
    Worker* w = membership_.find(id);
    w->maybe_started = hosts_.row(w->host).has_agent();
  }
  for (auto& [id, s] : servers_) s.started = hosts_.row(s.host).has_agent();
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
  is_resumed_ = !fresh;
  lost_time_.begin(is_resumed_);
  std::set<Host> needed;
  for (const auto& [id, w] : membership_.workers())
    if (w.state != WorkerState::kGone) needed.insert(w.host);
  for (const auto& [id, s] : servers_) needed.insert(s.host);
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
  server_homes_ = r.servers;
  for (const Host& host : r.servers) {
    ServerState s;
    s.host = host;
    s.index = next_server_.value;
    servers_.emplace(next_server_, std::move(s));
    next_server_ = next_server_.next();
  }
}

void Job::apply_one(const TermBegan& r) { term_ = r.term; }

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
    if (!job_.boundary.returns_to() && job_.boundary.epoch() != r.epoch) futile_.reset();
    epoch_begins(r.epoch);
    epoch_saves_.reset();
    if (r.saves) {
      epoch_saves_ = r.generation;
      checkpoints_.begin(r.epoch, r.generation, job_.now());
    }
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
  if (!job_.boundary.returns_to()) futile_.reset();
  epoch_begins(r.epoch);
  new_view();
  epoch_saves_.reset();
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
  if (furthest_ && epoch <= *furthest_) return;
  furthest_ = epoch;
  futile_rollbacks_ = 0;
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
      futile_.add(fmt::format("worker {} on {}: {}", w->id, w->host,
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

void Job::apply_one(const CheckpointTaken& r) {
  checkpoints_.taken(r.epoch);
  checkpoint_trouble_.clear();
}

void Job::apply_one(const CheckpointTimed& r) {
  // Wall clocks may have been set: nothing began after now, or took longer than a month.
  constexpr std::uint64_t kLongest_ms = std::uint64_t{31} * 24 * 3600 * 1000;
  const std::int64_t began =
      std::clamp<std::int64_t>(r.began_ns, 0, std::max<std::int64_t>(job_.out.now().wall_ns, 0));
  checkpoints_.timed(
      job_.now() - Duration(std::max<std::int64_t>(job_.out.now().wall_ns, 0) - began),
      std::chrono::milliseconds(std::min(r.took_ms, kLongest_ms)), r.bytes);
}

void Job::apply_one(const TimeSpent& r) { lost_time_.apply(r); }

void Job::apply_one(const RolledBack& r) {
  for (const auto& [id, s] : servers_) retired_[id] = s.host;
  servers_.clear();
  next_server_ = r.first;
  for (const Host& host : r.servers) {
    ServerState s;
    s.host = host;
    s.index = next_server_.value - r.first.value;
    servers_.emplace(next_server_, std::move(s));
    next_server_ = next_server_.next();
  }
  servers_since_ = r.generation;
  servers_epoch_ = r.epoch;
  servers_inherit_ = r.is_inherited;
  servers_why_ = r.why;
  if (!job_.boundary.returns_to()) interrupted_ = job_.boundary.epoch();
  job_.boundary.roll_back(r.generation, r.epoch);
  checkpoints_.roll_back(r.epoch);
  if (r.damaged) checkpoints_.damaged(*r.damaged);
  epoch_saves_.reset();
  hang_watch_.forget_servers();
  server_watch_.replaced();
  stalls_.clear();
  waiting_since_.reset();
  if (!r.damaged) ++futile_rollbacks_;  // there are only so many checkpoints
  // Everybody comes anew, but who is to leave; newcomers once they have the new servers' values.
  for (const WorkerId id : std::set(job_.boundary.unreleased())) {
    const Worker* w = membership_.find(id);
    if (!w || w->state != WorkerState::kLeaving) job_.boundary.released(id);
  }
  for (const auto& [id, w] : membership_.workers())
    membership_.advance(id, WorkerEvent::kServersReplaced, job_.now());
}

// ---------------------------------------------------------------- small things

void Job::tell_commit(ServerId id) {
  if (job_.options.opaque_servers) return;
  ServerCommit m;
  m.term = term_;
  m.generation = job_.boundary.generation();
  m.epoch = job_.boundary.returns_to().value_or(job_.boundary.epoch().value_or(Epoch(0)));
  m.boundary = job_.boundary.members() == job_.boundary.contributors();
  m.contributors = job_.boundary.contributors();
  m.checkpoint = epoch_saves_;
  job_.out.add(TellCommit{id, servers_.at(id).host, std::move(m)});
}

std::string Job::stays_empty(const Host& host) const {
  if (!job_.options.is_elastic) return "its place stays empty";
  return fmt::format("its place stays empty until its line is written again, or: dtctl add {}",
                     host);
}

bool Job::servers_listen() const {
  return job_.options.opaque_servers ||
         std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& s) { return !s.second.address.empty(); });
}

std::vector<ServerId> Job::server_ids() const {
  std::vector<ServerId> ids;
  if (job_.options.opaque_servers) return ids;  // they acknowledge nothing
  for (const auto& [id, s] : servers_) ids.push_back(id);
  return ids;
}

Servers Job::server_list() const {
  Servers list;
  for (const auto& [id, s] : servers_) list.servers.push_back({id, s.address, s.port});
  list.since = servers_since_;
  list.epoch = servers_epoch_;
  return list;
}

std::string_view Job::phase() const {
  if (job_.ending) return "ended";
  if (job_.finishing()) return "finishing";
  return job_.initial() ? "starting" : "running";
}

}  // namespace dt
