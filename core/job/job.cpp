#include "core/job/job.h"

#include <algorithm>

#include "core/job/job_text.h"

namespace dt {

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : options_(std::move(options)),
      membership_(options_.limits),
      liveness_(options_.liveness),
      server_watch_(options_.server_dead_after),
      checkpoints_(
          {options_.checkpoint_every, options_.checkpoint_interval, options_.keep_checkpoints}),
      now_(now) {
  for (const Record& r : records) replay(r);
  std::vector<WorkerId> ids;
  for (const auto& [id, w] : membership_.workers()) ids.push_back(id);
  for (const WorkerId id : ids) {
    Worker* w = membership_.find(id);
    w->maybe_started = hosts_[w->host].incarnation != 0;
  }
  for (auto& [id, s] : servers_) s.started = hosts_[s.host].incarnation != 0;
}

std::vector<Effect> Job::begin(Term term, Instant now) {
  now_ = now;
  effects_.clear();
  const bool fresh = boundary_.generation() == Generation(0);
  if (fresh) record(JobBegan{options_.workers, options_.servers});
  record(TermBegan{term});
  if (ending_) {
    for (const auto& [host, h] : hosts_)
      if (h.incarnation != 0) effects_.emplace_back(Attach{host, false});
    effects_.emplace_back(End{ending_->exit_code, ending_->message, options_.stop_grace});
    return std::move(effects_);
  }
  if (!fresh) resumed_at_ = now_.at;
  count_time();
  if (boundary_.returns_to()) recovering_since_ = lost_servers_at_ = now_.at;
  std::set<Host> needed;
  for (const auto& [id, w] : membership_.workers())
    if (w.state != WorkerState::kGone) needed.insert(w.host);
  for (const auto& [id, s] : servers_) needed.insert(s.host);
  for (const Host& host : needed) {
    HostState& h = hosts_[host];
    h.link = h.incarnation == 0 ? Link::kAttaching : Link::kDown;
    // Nothing is known of its life until it had time to be reached.
    if (h.link == Link::kDown) liveness_.link_down(host, now_.at + kReattachGrace);
    effects_.emplace_back(Attach{host, h.incarnation == 0});
  }
  settle();
  return std::move(effects_);
}

std::vector<Effect> Job::step(const JobEvent& event, Instant now) {
  now_ = now;
  effects_.clear();
  if (!ending_) {
    std::visit([this](const auto& e) { on(e); }, event);
    settle();
    // After End nothing more is asked.
    const auto is_end = [](const Effect& e) { return std::holds_alternative<End>(e); };
    const auto end = std::find_if(effects_.begin(), effects_.end(), is_end);
    if (end != effects_.end()) effects_.erase(end + 1, effects_.end());
  }
  return std::move(effects_);
}

void Job::replay(const Record& r) {
  apply(r);
  for (Note& told : change_notes(r)) {
    const auto rank = boundary_.rank_of(*told.worker);
    past_changes_.push_back({std::move(told), boundary_.generation(), boundary_.epoch(), rank});
  }
}

void Job::record(Record r) {
  apply(r);
  effects_.emplace_back(Append{std::move(r)});
}

void Job::apply(const Record& r) {
  std::visit([this](const auto& one) { apply_one(one); }, r);
}

void Job::apply_one(const JobBegan& r) {
  membership_.begin(r.workers, now_.at);
  std::vector<WorkerId> members;
  for (const auto& [id, w] : membership_.workers()) members.push_back(id);
  boundary_.begin(members);
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
  for (const auto& [host, h] : hosts_) before[host] = membership_.wanted(host);
  membership_.take_file(r.edit, r.hosts, now_.at);
  // A host that was wanted less starts with a clean sheet when it is wanted again.
  for (auto& [host, h] : hosts_) {
    if (membership_.wanted(host) < before.at(host)) {
      h.attempts = 0;
      h.restarts = {};
      h.given_up = false;
      h.cooling_until.reset();
    }
  }
}

void Job::apply_one(const WorkerAllotted& r) {
  membership_.add_worker(r.worker, r.host, r.edit, now_.at);
}

void Job::apply_one(const HostPrepared& r) { hosts_[r.host].prepared = true; }

void Job::apply_one(const Committed& r) {
  for (const WorkerId id : r.members) {
    if (!membership_.advance(id, WorkerEvent::kCommitted, now_.at)) continue;
    if (auto h = hosts_.find(membership_.find(id)->host); h != hosts_.end()) {
      h->second.attempts = 0;
      h->second.why.clear();
    }
  }
  for (const WorkerId id : r.leavers) membership_.advance(id, WorkerEvent::kRemoved, now_.at);
  if (r.boundary) {
    if (!boundary_.returns_to() && boundary_.epoch() != r.epoch) futile_.reset();
    epoch_begins(r.epoch);
    epoch_saves_.reset();
    if (r.saves) {
      epoch_saves_ = r.generation;
      checkpoints_.begin(r.epoch, r.generation, now_.at);
    }
    new_view();
    membership_.swaps_done(r.members, r.leavers);
    boundary_.begin_epoch(r.generation, r.epoch, r.members, r.contributors);
    forget_past();
  } else {
    boundary_.shrink(r.generation, r.contributors);
  }
  next_seq_ += r.log.size();
  opened_ = true;
}

void Job::apply_one(const EpochBegan& r) {
  // A base worker that took part in the first boundary was a member from the start.
  for (const WorkerId id : boundary_.contributors()) {
    if (const Worker* w = membership_.find(id))
      membership_.advance(id, WorkerEvent::kCommitted, w->since);
  }
  if (!boundary_.returns_to()) futile_.reset();
  epoch_begins(r.epoch);
  new_view();
  epoch_saves_.reset();
  boundary_.begin_epoch(r.epoch);
  forget_past();
  opened_ = true;
}

void Job::forget_past() {
  membership_.forget_gone(boundary_.members(), now_.at);
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
  below_least_since_.reset();
  if (finishing()) return;
  worker_code_ = 0;  // those who died earlier are no members of this view
  worker_why_.clear();
}

void Job::apply_one(const WorkerGone& r) {
  Worker* w = membership_.find(r.worker);
  if (!w) return;
  const bool contributes =
      std::find(boundary_.contributors().begin(), boundary_.contributors().end(), r.worker) !=
      boundary_.contributors().end();
  // A member that ends well without having been told to leave has come to its program's end.
  if (contributes && r.status.clean() && r.why.empty()) exits_.ended(r.worker, w->host);
  if (contributes && !r.status.clean()) {
    if (death_code_ == 0) death_code_ = r.status.shell_code();
    if (!finishing() && !initial()) {
      HostState& h = hosts_[w->host];
      h.restarts.add(r.log.empty() ? now_.wall_ns : r.log.front().wall_ns, options_.restart_refill);
      h.given_up = h.restarts.count() > restart_budget(w->host);
      futile_.add(fmt::format("worker {} on {}: {}", w->id, w->host,
                              r.why.empty() ? to_string(r.status) : r.why));
    }
    if (worker_code_ == 0) {
      worker_code_ = r.status.shell_code();
      worker_why_ = fmt::format("worker {} on {} ended{}: {}", w->id, w->host,
                                initial() ? " before its first epoch" : "",
                                r.why.empty() ? to_string(r.status) : r.why);
    }
  }
  membership_.advance(r.worker, WorkerEvent::kEnded, now_.at);
  w->why = r.why.empty() ? to_string(r.status) : r.why;
  boundary_.forget(r.worker);
  arrived_at_.erase(r.worker);
  hang_watch_.forget(r.worker);
  liveness_.forget(r.worker);
  stalls_.doing(r.worker);
  to_release_.erase(r.worker);
  next_seq_ += r.log.size();
}

void Job::apply_one(const MemberLeft& r) {
  exits_.left(r.worker);
  next_seq_ += r.log.size();
  if (!r.empties_place) return;
  membership_.empty_place(r.host);
  HostState& h = hosts_[r.host];
  h.why = fmt::format("worker {} ended with exit code 0 while others went on: {}", r.worker,
                      stays_empty(r.host));
  h.check = "run";
}

void Job::apply_one(const PlacesWanted& r) {
  membership_.fill_places(r.host, r.count);
  hosts_[r.host].why.clear();
}

void Job::apply_one(const AgentKnown& r) {
  HostState& h = hosts_[r.host];
  h.boot_id = r.boot_id;
  h.incarnation = r.incarnation;
  h.had_agent = h.had_agent || r.incarnation != 0;
  if (r.incarnation == 0) h.preparing = false;
}

void Job::apply_one(const AgentPlaced& r) { hosts_[r.host].place = r.place; }

void Job::apply_one(const JobEnding& r) { ending_ = r; }

void Job::apply_one(const CheckpointTaken& r) {
  checkpoints_.taken(r.epoch);
  checkpoint_trouble_.clear();
}

void Job::apply_one(const CheckpointTimed& r) {
  // Wall clocks may have been set: nothing began after now, or took longer than a month.
  constexpr std::uint64_t kLongest_ms = std::uint64_t{31} * 24 * 3600 * 1000;
  const std::int64_t began =
      std::clamp<std::int64_t>(r.began_ns, 0, std::max<std::int64_t>(now_.wall_ns, 0));
  checkpoints_.timed(now_.at - Duration(std::max<std::int64_t>(now_.wall_ns, 0) - began),
                     std::chrono::milliseconds(std::min(r.took_ms, kLongest_ms)), r.bytes);
}

void Job::apply_one(const TimeSpent& r) {
  std::map<std::string, Duration> lost;
  const auto time = [](std::uint64_t ns) { return Duration(static_cast<Duration::rep>(ns)); };
  for (const auto& [cause, ns] : r.lost) lost[cause] = time(ns);
  lost_time_.resume(time(r.total_ns), std::move(lost));
}

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
  if (!boundary_.returns_to()) interrupted_ = boundary_.epoch();
  boundary_.roll_back(r.generation, r.epoch);
  checkpoints_.roll_back(r.epoch);
  if (r.damaged) checkpoints_.damaged(*r.damaged);
  epoch_saves_.reset();
  hang_watch_.forget_servers();
  server_watch_.replaced();
  stalls_.clear();
  waiting_since_.reset();
  if (!r.damaged) ++futile_rollbacks_;  // there are only so many checkpoints
  // Everybody comes anew, but who is to leave; newcomers once they have the new servers' values.
  std::erase_if(to_release_, [this](WorkerId id) {
    const Worker* w = membership_.find(id);
    return !w || w->state != WorkerState::kLeaving;
  });
  for (const auto& [id, w] : membership_.workers())
    membership_.advance(id, WorkerEvent::kServersReplaced, now_.at);
}

// ---------------------------------------------------------------- small things

void Job::tell_commit(ServerId id) {
  if (options_.opaque_servers) return;
  ServerCommit m;
  m.term = term_;
  m.generation = boundary_.generation();
  m.epoch = boundary_.returns_to().value_or(boundary_.epoch().value_or(Epoch(0)));
  m.boundary = boundary_.members() == boundary_.contributors();
  m.contributors = boundary_.contributors();
  m.checkpoint = epoch_saves_;
  effects_.emplace_back(TellCommit{id, servers_.at(id).host, std::move(m)});
}

void Job::end(int exit_code, std::string message, Duration grace) {
  if (ending_) return;
  record(JobEnding{exit_code, message});
  Note ended{Note::Kind::kMeasure, "job_ended", message};
  ended.numbers.emplace_back("code", exit_code);
  effects_.emplace_back(std::move(ended));
  effects_.emplace_back(End{exit_code, std::move(message), grace});
}

void Job::note(Note::Kind kind, std::string what, std::string text, std::optional<WorkerId> worker,
               std::optional<Host> host) {
  effects_.emplace_back(Note{kind, std::move(what), std::move(text), worker, std::move(host)});
}

std::string Job::stays_empty(const Host& host) const {
  if (!options_.is_elastic) return "its place stays empty";
  return fmt::format("its place stays empty until its line is written again, or: dtctl add {}",
                     host);
}

bool Job::knows_ports() const {
  if (options_.workers.empty()) return true;
  const auto first = hosts_.find(options_.workers.front());
  return first != hosts_.end() && first->second.incarnation != 0;
}

bool Job::servers_listen() const {
  return options_.opaque_servers ||
         std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& s) { return !s.second.address.empty(); });
}

std::vector<ServerId> Job::server_ids() const {
  std::vector<ServerId> ids;
  if (options_.opaque_servers) return ids;  // they acknowledge nothing
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
  if (ending_) return "ended";
  if (finishing()) return "finishing";
  return initial() ? "starting" : "running";
}

}  // namespace dt
