#include "core/job.h"

#include <algorithm>

namespace dt {
namespace {

/// How long a new supervisor may take to reach the agents before silence counts.
constexpr Duration kReattachGrace = std::chrono::seconds(15);

/// "host: why", unless the reason names the host already.
std::string at_host(const Host& host, const std::string& why) {
  const std::string name = to_string(host);
  return why.starts_with(name + ":") ? why : fmt::format("{}: {}", name, why);
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

std::string join_ids(const std::vector<WorkerId>& ids) {
  return fmt::format("{}", fmt::join(ids, ", "));
}

}  // namespace

// ---------------------------------------------------------------- begin and replay

Job::Job(JobOptions options, const std::vector<Record>& records, Instant now)
    : options_(std::move(options)), liveness_(options_.liveness), now_(now) {
  for (const Record& r : records) apply(r);
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
  if (!fresh) commit_sent_ = now_.at;  // the servers have to confirm where they are
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
  std::uint32_t next = 0;
  for (const Host& host : r.servers) {
    ServerState s;
    s.host = host;
    servers_.emplace(ServerId(next++), std::move(s));
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
      h.restarts = 0;
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
    if (Worker* w = membership_.find(id);
        w && w->state != WorkerState::kMember && w->state != WorkerState::kGone) {
      w->state = WorkerState::kMember;
      w->was_member = true;
      w->since = now_.at;
      if (auto h = hosts_.find(w->host); h != hosts_.end()) {
        h->second.attempts = 0;
        h->second.why.clear();
      }
    }
  }
  for (const WorkerId id : r.leavers) {
    if (Worker* w = membership_.find(id); w && w->state != WorkerState::kGone) {
      w->state = WorkerState::kLeaving;
      w->since = now_.at;
    }
  }
  if (r.boundary) {
    new_view();
    membership_.swaps_done(r.members, r.leavers);
    boundary_.begin_epoch(r.generation, r.epoch, r.members, r.contributors);
  } else {
    boundary_.shrink(r.generation, r.contributors);
  }
  next_seq_ += r.log.size();
  opened_ = true;
}

void Job::apply_one(const EpochBegan& r) {
  // A base worker that took part in the first boundary was a member from the start.
  for (const WorkerId id : boundary_.contributors()) {
    if (Worker* w = membership_.find(id); w && w->state != WorkerState::kGone)
      w->state = WorkerState::kMember;
  }
  new_view();
  boundary_.begin_epoch(r.epoch);
  opened_ = true;
}

void Job::new_view() {
  waiting_since_.reset();
  if (finishing_) return;
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
  if (contributes && r.status.clean() && r.why.empty()) finishing_ = true;
  if (contributes && !r.status.clean()) {
    if (death_code_ == 0) death_code_ = r.status.shell_code();
    if (!finishing_ && !initial()) {
      HostState& h = hosts_[w->host];
      ++h.restarts;
      h.given_up = h.restarts > restart_budget(w->host);
    }
    if (worker_code_ == 0) {
      worker_code_ = r.status.shell_code();
      worker_why_ = fmt::format("worker {} on {} ended{}: {}", w->id, w->host,
                                initial() ? " before its first epoch" : "",
                                r.why.empty() ? to_string(r.status) : r.why);
    }
  }
  w->state = WorkerState::kGone;
  w->since = now_.at;
  w->why = r.why.empty() ? to_string(r.status) : r.why;
  boundary_.forget(r.worker);
  to_release_.erase(r.worker);
  next_seq_ += r.log.size();
}

void Job::apply_one(const AgentKnown& r) {
  HostState& h = hosts_[r.host];
  h.boot_id = r.boot_id;
  h.incarnation = r.incarnation;
  if (r.incarnation == 0) h.preparing = false;
}

void Job::apply_one(const JobEnding& r) { ending_ = r; }

// ---------------------------------------------------------------- events

void Job::on(const HostsAccepted& e) {
  if (e.hosts == membership_.file()) return;
  for (const Host& host : membership_.refused_removals(e.hosts))
    note(Note::Kind::kRefusal, "base_host_kept",
         fmt::format("{} is a host of the initial launch: its {} worker(s) stay", host,
                     membership_.base_count(host)),
         std::nullopt, host);
  record(FileTaken{membership_.last_edit().next(), e.hosts});
  std::vector<std::string> lines;
  for (const HostSlots& s : e.hosts)
    lines.push_back(s.slots == 1 ? to_string(s.host) : fmt::format("{} x{}", s.host, s.slots));
  note(Note::Kind::kInfo, "file_accepted",
       fmt::format("host_worker accepted: {}", fmt::join(lines, ", ")));
  if (!opened_)
    note(Note::Kind::kRefusal, "opaque",
         "the command has not opened a distributed kvstore: the set of workers cannot change "
         "until it does");
}

void Job::on(const AgentAttached& e) {
  HostState& h = hosts_[e.host];
  const bool same = h.incarnation == e.incarnation && h.boot_id == e.boot_id;
  if (h.incarnation != 0 && !same) {
    processes_lost(e.host, "its agent was replaced: everything there is dead");
    h.preparing = false;
  }
  h.link = Link::kUp;
  liveness_.link_up(e.host);
  if (!same) record(AgentKnown{e.host, e.boot_id, e.incarnation});
  if (ending_) return;

  const auto reported = [&e](ProcessId id) {
    return std::any_of(e.processes.begin(), e.processes.end(),
                       [id](const ProcessReport& p) { return p.process == id; });
  };
  for (auto& [id, s] : servers_) {
    if (s.host != e.host) continue;
    s.started = s.started || reported({Role::kServer, id.value});
    if (!reported({Role::kServer, id.value})) {
      s.started = true;
      effects_.emplace_back(StartServer{id, s.host});
      note(Note::Kind::kLaunch, "server_launched",
           fmt::format("Launching server node at ip: {}", s.host.name), std::nullopt, s.host);
    }
    tell_commit(id);
    commit_sent_ = now_.at;  // one that never says anything is dead, too
  }
  for (const ProcessReport& p : e.processes) {
    // Left over from before its host was given up as lost: fenced, and stopped now.
    const Worker* w =
        p.process.role == Role::kWorker ? membership_.find(WorkerId(p.process.id)) : nullptr;
    if (w && w->state == WorkerState::kGone && !p.exit)
      effects_.emplace_back(Stop{p.process, e.host, Duration{}});
  }
  std::vector<WorkerId> here;
  for (const auto& [id, w] : membership_.workers())
    if (w.host == e.host && w.state != WorkerState::kGone) here.push_back(id);
  for (const WorkerId id : here) {
    if (reported({Role::kWorker, id.value}))
      say_again(id);
    else
      never_heard_of(id);
    if (ending_) return;
  }
}

void Job::say_again(WorkerId id) {
  Worker& w = *membership_.find(id);
  w.maybe_started = false;
  // A start journalled in an earlier term: the agent knows more than the journal.
  if (w.state == WorkerState::kSeen) membership_.advance(id, WorkerEvent::kHostChosen, now_.at);
  if (w.state == WorkerState::kPreparing) membership_.advance(id, WorkerEvent::kStartSent, now_.at);
  if (servers_listen()) effects_.emplace_back(TellServers{id, w.host, server_list()});
  const bool enforced = leave_enforced_.count(id) > 0;
  if (w.state == WorkerState::kStopping || enforced)
    effects_.emplace_back(Stop{{Role::kWorker, id.value}, w.host, options_.stop_grace});
  if (w.state == WorkerState::kMember && boundary_.members() != boundary_.contributors())
    effects_.emplace_back(
        TellShrunk{id, w.host, Shrunk{boundary_.generation(), boundary_.contributors().front()}});
}

void Job::never_heard_of(WorkerId id) {
  Worker& w = *membership_.find(id);
  w.maybe_started = false;
  switch (w.state) {
    case WorkerState::kSeen:
    case WorkerState::kPreparing:
    case WorkerState::kGone:
      return;
    case WorkerState::kStarting:
      w.state = WorkerState::kPreparing;  // the start got lost: once more
      return;
    case WorkerState::kStopping:
      return worker_gone(id, ExitStatus{}, "it was never started");
    case WorkerState::kWarm:
    case WorkerState::kMember:
    case WorkerState::kLeaving:
      on(ProcessEnded{{Role::kWorker, id.value}, {0, 9}, "its agent does not know it", false});
      return;
  }
}

void Job::on(const AgentDetached& e) {
  HostState& h = hosts_[e.host];
  if (e.gone) {
    h.link = Link::kNone;
    liveness_.forget(e.host);
    processes_lost(e.host, fmt::format("its agent is gone ({})", e.why));
    if (h.incarnation != 0) record(AgentKnown{e.host, {}, 0});
    return;
  }
  if (h.link == Link::kUp)
    note(Note::Kind::kFailure, "link_down",
         fmt::format("the link to {} broke ({}): attaching again", e.host, e.why), std::nullopt,
         e.host);
  if (h.link != Link::kNone) {
    h.link = Link::kDown;
    liveness_.link_down(e.host, now_.at);
  }
}

void Job::on(const AttachFailed& e) {
  HostState& h = hosts_[e.host];
  if (h.link != Link::kAttaching) return;
  h.link = Link::kNone;
  host_failed(e.host, e.why);
}

void Job::on(const PrepareEnded& e) {
  HostState& h = hosts_[e.host];
  if (!h.preparing) return;  // the host was let go meanwhile
  h.preparing = false;
  if (e.ok) {
    if (!h.prepared) record(HostPrepared{e.host});
  } else {
    host_failed(e.host, fmt::format("prepare-data failed: {}", e.why));
  }
}

void Job::on(const WorkerStarted& e) {
  if (Worker* w = membership_.find(e.worker)) w->why.clear();
}

void Job::on(const ProcessEnded& e) {
  if (e.process.role == Role::kServer) {
    const ServerId id(e.process.id);
    const auto s = servers_.find(id);
    if (s == servers_.end()) return;
    end(e.never_ran ? options_.codes.command_failed : options_.codes.server_lost,
        fmt::format("server {} on {} ended ({}) and no checkpoint is there to go back to", id,
                    s->second.host, e.why.empty() ? to_string(e.status) : e.why),
        options_.stop_grace);
    return;
  }
  const WorkerId id(e.process.id);
  Worker* w = membership_.find(id);
  if (e.process.role != Role::kWorker || !w) return;
  if (w->state == WorkerState::kGone) {
    effects_.emplace_back(Acknowledge{e.process, w->host});
    return;
  }
  ExitStatus status = e.status;
  if (e.never_ran && status.clean()) status.code = options_.codes.command_failed;
  const std::string reason = e.why.empty() ? to_string(status) : e.why;
  const Host host = w->host;
  const bool base_start = w->base && initial();
  const bool newcomer = on_the_way(w->state) && !base_start;
  const bool member = w->state == WorkerState::kMember || base_start;
  if (newcomer) {
    worker_gone(id, status, fmt::format("ended before it joined: {}", reason));
    host_failed(host, fmt::format("worker {} ended before it joined: {}", id, reason));
  } else {
    worker_gone(id, status, status.clean() ? "" : e.why);
    if (member && !initial() && !status.clean() && !finishing_) {
      HostState& h = hosts_[host];
      h.why = fmt::format("worker {}: {}", id, reason);
      if (h.given_up) {
        note(Note::Kind::kFailure, "host_given_up",
             fmt::format("{} is given up after {} restart(s): worker {}: {}", host,
                         restart_budget(host), id, reason),
             id, host);
      } else {
        const Duration delay = retry_delay(h.restarts, std::hash<std::string>{}(to_string(host)));
        h.cooling_until = now_.at + delay;
        note(Note::Kind::kFailure, "worker_died",
             fmt::format("worker {} on {} died ({}): restart {} of {} in {:.1f} s", id, host,
                         reason, h.restarts, restart_budget(host), seconds(delay)),
             id, host);
      }
    }
  }
  effects_.emplace_back(Acknowledge{e.process, host});
}

void Job::on(const StoreOpened& e) {
  opened_ = true;
  if (Worker* w = membership_.find(e.worker)) w->opened = true;
}

void Job::on(const WorkerArrived& e) {
  Worker* w = membership_.find(e.worker);
  if (!w) return;
  opened_ = true;
  w->opened = true;
  switch (w->state) {
    case WorkerState::kSeen:
    case WorkerState::kPreparing:
    case WorkerState::kStarting: {
      w->state = WorkerState::kStarting;
      membership_.advance(e.worker, WorkerEvent::kJoined, now_.at);
      if (w->base && initial()) {
        static_cast<void>(boundary_.arrive(e.worker, e.epoch));
      } else {
        note(Note::Kind::kInfo, "worker_warm",
             fmt::format("worker {} on {} is ready and joins at the next epoch", e.worker, w->host),
             e.worker, w->host);
      }
      break;
    }
    case WorkerState::kMember:
      if (e.join && !initial()) {
        to_release_.insert(e.worker);
        break;
      }
      switch (boundary_.arrive(e.worker, e.epoch)) {
        case Boundary::Arrival::kCounted:
          break;
        case Boundary::Arrival::kReleased:
          to_release_.insert(e.worker);
          break;
        case Boundary::Arrival::kWrong:
          w->why = fmt::format("it came to epoch {} while the job is in epoch {}", e.epoch,
                               boundary_.epoch()->value);
          note(Note::Kind::kFailure, "wrong_epoch",
               fmt::format("worker {} on {} is stopped: {}", e.worker, w->host, w->why), e.worker,
               w->host);
          effects_.emplace_back(Stop{{Role::kWorker, e.worker.value}, w->host, Duration{}});
          break;
      }
      break;
    case WorkerState::kLeaving:
      to_release_.insert(e.worker);
      break;
    case WorkerState::kWarm:
    case WorkerState::kStopping:
    case WorkerState::kGone:
      break;
  }
}

void Job::on(const ServerListening& e) {
  const auto it = servers_.find(e.server);
  if (it == servers_.end()) return;
  ServerState& s = it->second;
  s.started = true;
  if (s.address == e.address && s.port == e.port) return;
  s.address = e.address;
  s.port = e.port;
  if (!servers_listen()) return;
  std::vector<WorkerId> running;
  for (const auto& [id, w] : membership_.workers())
    if (may_run(w.state)) running.push_back(id);
  for (const WorkerId id : running) {
    Worker& w = *membership_.find(id);
    effects_.emplace_back(TellServers{id, w.host, server_list()});
    if (w.state == WorkerState::kStarting) w.since = now_.at;  // only now it can connect
  }
}

void Job::on(const CommitAcked& e) { boundary_.acked(e.server, e.generation); }

void Job::on(const TrafficSeen& e) {
  for (const WorkerId id : e.alive) liveness_.traffic(id, now_.at);
}

void Job::on(const StopAsked& e) { end(e.exit_code, e.why, options_.stop_grace); }

void Job::on(const Tick&) {
  check_lives();
  check_deadlines();
}

// ---------------------------------------------------------------- what happens to workers

void Job::worker_gone(WorkerId id, ExitStatus status, const std::string& why) {
  const Worker* w = membership_.find(id);
  if (!w || w->state == WorkerState::kGone) return;
  WorkerGone gone{id, status, why, {}};
  const bool own_end = w->state != WorkerState::kLeaving && status.clean() && why.empty();
  if (w->was_member && !initial() && !own_end) gone.log.push_back(log_line(false, w->host));
  const Host host = w->host;
  const bool logged = !gone.log.empty();
  record(std::move(gone));
  if (logged)
    note(Note::Kind::kCommit, "worker_removed",
         fmt::format("worker {} on {} is removed ({})", id, host,
                     why.empty() ? to_string(status) : why),
         id, host);
}

void Job::host_failed(const Host& host, const std::string& why) {
  HostState& h = hosts_[host];
  if (membership_.wanted(host) == 0 && !initial()) return;  // its failure is nobody's loss
  ++h.attempts;
  h.why = why;
  const bool initial_worker = initial() && start_waits_for(host);
  if (initial_worker) {
    constexpr std::uint32_t kInitialTries = 3;
    const bool prepare = why.rfind("prepare-data", 0) == 0;
    if (!prepare || h.attempts >= kInitialTries) {
      end(options_.codes.unreachable, at_host(host, why), options_.stop_grace);
      return;
    }
  }
  const Duration delay = retry_delay(h.attempts, std::hash<std::string>{}(to_string(host)));
  h.cooling_until = now_.at + delay;
  note(Note::Kind::kFailure, "host_failed",
       fmt::format("{}; try {} in {:.1f} s", at_host(host, why), h.attempts + 1, seconds(delay)),
       std::nullopt, host);
  if (initial_worker) return;  // the same base workers try again
  std::vector<WorkerId> waiting;
  for (const auto& [id, w] : membership_.workers())
    if (w.host == host && (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing))
      waiting.push_back(id);
  for (const WorkerId id : waiting) worker_gone(id, ExitStatus{1, 0}, why);
}

bool Job::start_waits_for(const Host& host) const {
  const auto& workers = membership_.workers();
  return std::any_of(workers.begin(), workers.end(),
                     [&host](const auto& w) {
                       return w.second.base && w.second.host == host &&
                              (w.second.state == WorkerState::kSeen ||
                               w.second.state == WorkerState::kPreparing);
                     }) ||
         std::any_of(servers_.begin(), servers_.end(),
                     [&host](const auto& s) { return s.second.host == host && !s.second.started; });
}

void Job::processes_lost(const Host& host, const std::string& why) {
  for (const auto& [id, s] : servers_) {
    if (s.host == host && s.started) {
      end(options_.codes.server_lost,
          fmt::format("server {} is lost with its host {}: {}", id, host, why),
          options_.stop_grace);
      return;
    }
  }
  std::vector<WorkerId> there;
  for (const auto& [id, w] : membership_.workers())
    if (w.host == host && w.state != WorkerState::kGone && (may_run(w.state) || w.maybe_started))
      there.push_back(id);
  for (const WorkerId id : there) {
    ProcessEnded lost;
    lost.process = {Role::kWorker, id.value};
    lost.status.signal = 9;
    lost.why = why;
    on(lost);
    if (ending_) return;
  }
}

LogLine Job::log_line(bool added, const Host& host) {
  return LogLine{next_seq_, added, host, now_.wall_ns};
}

// ---------------------------------------------------------------- decisions

void Job::settle() {
  // Each pass may enable the next one; every pass that changes something appends a record or sends
  // something once, so this ends.
  if (initial() && worker_code_ != 0) end(worker_code_, worker_why_, options_.stop_grace);
  stop_unwanted();
  fill_gaps();
  move_newcomers();
  shrink_if_someone_died();
  cross_boundary();
  release();
  let_hosts_go();
  end_if_over();
}

bool Job::usable(const Host& host) const {
  const auto it = hosts_.find(host);
  if (it == hosts_.end()) return true;
  const HostState& h = it->second;
  return !h.given_up && (!h.cooling_until || now_.at >= *h.cooling_until);
}

void Job::stop_unwanted() {
  if (ending_) return;
  std::vector<WorkerId> unwanted;
  if (finishing_) {
    for (const auto& [id, w] : membership_.workers())
      if (on_the_way(w.state)) unwanted.push_back(id);
  } else {
    unwanted = membership_.unwanted_newcomers();
  }
  for (const WorkerId id : unwanted) {
    const Worker* w = membership_.find(id);
    if (w->base && initial()) continue;
    if (w->maybe_started) continue;  // its agent has to be asked first
    const Host host = w->host;
    const char* why = finishing_ ? "the job is finishing" : "no longer wanted";
    note(Note::Kind::kInfo, "newcomer_stopped",
         fmt::format("the newcomer worker {} on {} is stopped: {}", id, host, why), id, host);
    if (may_run(w->state)) {
      membership_.advance(id, WorkerEvent::kUnwanted, now_.at);
      effects_.emplace_back(Stop{{Role::kWorker, id.value}, host, options_.stop_grace});
    } else {
      worker_gone(id, ExitStatus{}, why);
    }
  }
}

void Job::fill_gaps() {
  // During the start newcomers may already warm up, once the command is known to be elastic.
  if (ending_ || finishing_ || !opened_) return;
  for (const Host& host : membership_.hosts()) {
    if (!usable(host)) continue;
    std::uint32_t there = membership_.present(host);
    const std::uint32_t wanted = membership_.wanted(host);
    for (; there < wanted; ++there) {
      const Edit edit =
          membership_.base_count(host) == wanted ? Edit{} : membership_.added_by(host);
      record(WorkerAllotted{membership_.next_id(), host, edit});
    }
  }
}

void Job::move_newcomers() {
  if (ending_) return;
  std::vector<WorkerId> todo;
  for (const auto& [id, w] : membership_.workers())
    if (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing) todo.push_back(id);
  for (const WorkerId id : todo) {
    const Worker& w = *membership_.find(id);
    const Host host = w.host;
    HostState& h = hosts_[host];
    if (!usable(host)) continue;
    if (w.state == WorkerState::kSeen) membership_.advance(id, WorkerEvent::kHostChosen, now_.at);
    if (h.link == Link::kNone) {
      h.link = Link::kAttaching;
      effects_.emplace_back(Attach{host, true});
    }
    if (h.link != Link::kUp) continue;
    if (options_.needs_prepare && !h.prepared) {
      if (!h.preparing) {
        h.preparing = true;
        effects_.emplace_back(Prepare{host});
      }
      continue;
    }
    if (!membership_.advance(id, WorkerEvent::kStartSent, now_.at)) continue;
    StartWorker start;
    start.worker = id;
    start.host = host;
    start.newcomer = !(w.base && initial());
    const auto rank = boundary_.rank_of(id);
    const auto size = static_cast<std::uint32_t>(boundary_.members().size());
    start.rank = rank.value_or(Rank(size));
    start.world_size = rank ? size : size + 1;
    start.epoch = boundary_.epoch() ? boundary_.epoch()->next() : Epoch(0);
    note(Note::Kind::kLaunch, "worker_launched",
         fmt::format("Launching worker node at ip: {}", host.name), id, host);
    effects_.emplace_back(start);
    if (servers_listen()) effects_.emplace_back(TellServers{id, host, server_list()});
  }
}

void Job::shrink_if_someone_died() {
  if (ending_ || initial()) return;
  std::vector<WorkerId> live;
  for (const WorkerId id : boundary_.contributors()) {
    const Worker* w = membership_.find(id);
    if (w && w->state == WorkerState::kMember) live.push_back(id);
  }
  if (live.size() == boundary_.contributors().size()) return;
  if (finishing_ && live.empty()) return;
  Committed c;
  c.generation = boundary_.generation().next();
  c.boundary = false;
  c.epoch = *boundary_.epoch();
  c.members = boundary_.members();
  c.contributors = live;
  record(c);
  commit_sent_ = now_.at;
  for (const auto& [id, s] : servers_) tell_commit(id);
  if (!live.empty()) {
    for (const WorkerId id : live)
      effects_.emplace_back(
          TellShrunk{id, membership_.find(id)->host, Shrunk{c.generation, live.front()}});
    // At the end one after the other leaves: that is no news.
    if (!finishing_)
      note(Note::Kind::kCommit, "shrunk",
           fmt::format("generation {}: epoch {} goes on with worker(s) {}", c.generation, c.epoch,
                       join_ids(live)));
  } else {
    note(Note::Kind::kCommit, "nobody_left",
         fmt::format("generation {}: no member is alive; epoch {} starts again with the first "
                     "worker that is ready",
                     c.generation, c.epoch));
  }
}

void Job::cross_boundary() {
  if (ending_) return;
  if (const auto odd = boundary_.odd_one()) {
    const Worker* w = membership_.find(*odd);
    end(1,
        fmt::format("worker {} on {} begins with epoch {}, another with {}: start all with the "
                    "same epoch",
                    *odd, w->host, boundary_.arrivals().at(*odd),
                    boundary_.arrivals().begin()->second),
        options_.stop_grace);
    return;
  }
  pending_reason_.clear();
  std::optional<Epoch> next = boundary_.complete();
  const bool nobody = boundary_.contributors().empty();
  if (nobody && !initial()) next = *boundary_.epoch();
  if (!next) {
    if (!boundary_.arrivals().empty() && !boundary_.missing().empty())
      pending_reason_ =
          fmt::format("the boundary waits for worker(s) {}", join_ids(boundary_.missing()));
    return;
  }
  Plan plan;
  if (!finishing_) plan = membership_.plan(boundary_.contributors(), now_.at, unreachable());
  pending_reason_ = plan.reason;
  if (nobody && plan.joins.empty()) return;
  if (finishing_ && nobody) return;
  if (!servers_listen()) return;
  commit(true, *next, plan);
}

void Job::commit(bool at_boundary, Epoch epoch, const Plan& plan) {
  DT_CHECK(at_boundary, "only boundaries commit a plan");
  const bool changed = !plan.joins.empty() || !plan.leaves.empty() ||
                       boundary_.members() != boundary_.contributors();
  for (const auto& [id, e] : boundary_.arrivals()) to_release_.insert(id);
  if (!changed) {
    record(EpochBegan{epoch});
    if (!commit_sent_ && !boundary_.all_acked(server_ids())) commit_sent_ = now_.at;
    return;
  }
  Committed c;
  c.generation = boundary_.generation().next();
  c.boundary = true;
  c.epoch = epoch;
  for (const WorkerId id : boundary_.contributors())
    if (std::find(plan.leaves.begin(), plan.leaves.end(), id) == plan.leaves.end())
      c.members.push_back(id);
  for (const WorkerId id : plan.joins) {
    c.members.push_back(id);
    LogLine line = log_line(true, membership_.find(id)->host);
    line.seq += c.log.size();
    c.log.push_back(std::move(line));
    to_release_.insert(id);
  }
  c.contributors = c.members;
  c.leavers = plan.leaves;
  // Base workers become members at the first boundary whether or not it changes the view.
  record(c);
  commit_sent_ = now_.at;
  for (const auto& [id, s] : servers_) tell_commit(id);
  std::string text = fmt::format("generation {}: epoch {} begins with {} worker(s)", c.generation,
                                 c.epoch, c.members.size());
  if (!plan.joins.empty()) text += fmt::format(", joined: {}", join_ids(plan.joins));
  if (!plan.leaves.empty()) text += fmt::format(", leaving: {}", join_ids(plan.leaves));
  note(Note::Kind::kCommit, "committed", text);
  for (const WorkerId id : plan.joins)
    note(Note::Kind::kCommit, "worker_added",
         fmt::format("worker {} on {} is a member, rank {} of {}", id, membership_.find(id)->host,
                     boundary_.rank_of(id)->value, c.members.size()),
         id, membership_.find(id)->host);
}

void Job::release() {
  if (ending_ || to_release_.empty() || initial()) return;
  if (!boundary_.all_acked(server_ids())) return;
  commit_sent_.reset();
  std::set<WorkerId> out_of_reach;
  for (const WorkerId id : to_release_) {
    Worker* w = membership_.find(id);
    if (!w) continue;
    if (hosts_[w->host].link != Link::kUp) {
      out_of_reach.insert(id);
      continue;
    }
    Release r;
    r.generation = boundary_.generation();
    r.world_size = static_cast<std::uint32_t>(boundary_.members().size());
    r.epoch = *boundary_.epoch();
    if (w->state == WorkerState::kLeaving) {
      r.verdict = Verdict::kLeave;
    } else if (const auto rank = boundary_.rank_of(id); rank && w->state == WorkerState::kMember) {
      r.rank = *rank;
      r.newcomer = !w->base && !w->greeted;
    } else {
      continue;
    }
    w->greeted = true;
    effects_.emplace_back(TellRelease{id, w->host, r});
  }
  to_release_ = std::move(out_of_reach);
}

void Job::let_hosts_go() {
  if (ending_) return;
  for (auto& [host, h] : hosts_) {
    if (h.link != Link::kUp && h.link != Link::kDown) continue;
    if (membership_.wanted(host) > 0) continue;
    const bool used =
        std::any_of(membership_.workers().begin(), membership_.workers().end(),
                    [&host = host](const auto& w) {
                      return w.second.host == host && w.second.state != WorkerState::kGone;
                    }) ||
        std::any_of(servers_.begin(), servers_.end(),
                    [&host = host](const auto& s) { return s.second.host == host; });
    if (used) continue;
    h.link = Link::kNone;
    liveness_.forget(host);
    if (h.incarnation != 0) record(AgentKnown{host, {}, 0});
    effects_.emplace_back(ReleaseHost{host});
  }
}

bool Job::anyone_runs() const {
  return std::any_of(membership_.workers().begin(), membership_.workers().end(),
                     [](const auto& w) { return w.second.state != WorkerState::kGone; });
}

void Job::end_if_over() {
  if (ending_) return;
  if (finishing_ && !anyone_runs()) {
    end(worker_code_,
        worker_code_ == 0 ? std::string("the job has finished") : "the job failed: " + worker_why_,
        Duration{});
    return;
  }
  if (finishing_ || initial() || anyone_runs()) return;
  // Nobody is left. Somebody may come again only from a host that is not given up.
  for (const Host& host : membership_.hosts()) {
    const auto it = hosts_.find(host);
    if (membership_.wanted(host) > 0 && (it == hosts_.end() || !it->second.given_up)) return;
  }
  end(death_code_ == 0 ? 1 : death_code_,
      "no worker is left and every host has used up its restarts", Duration{});
}

// ---------------------------------------------------------------- deadlines

void Job::check_deadlines() {
  if (ending_) return;
  if (commit_sent_ && !boundary_.all_acked(server_ids()) && servers_told() &&
      now_.at - *commit_sent_ >= options_.ack_timeout) {
    end(options_.codes.server_lost,
        fmt::format("a server has not acknowledged generation {} within {:.0f} s",
                    boundary_.generation(), seconds(options_.ack_timeout)),
        options_.stop_grace);
    return;
  }
  check_boundary_timeout();
  const bool someone_arrived = !boundary_.arrivals().empty();
  std::vector<WorkerId> ids;
  for (const auto& [id, w] : membership_.workers()) ids.push_back(id);
  for (const WorkerId id : ids) {
    const Worker& w = *membership_.find(id);
    const Host host = w.host;
    const Duration age = now_.at - w.since;
    if (w.state == WorkerState::kStarting && age >= options_.start_timeout) {
      if (w.base && initial()) {
        // An opaque command, or a script without boundaries, never arrives and need not.
        if (!someone_arrived) continue;
        end(options_.codes.start_timeout,
            fmt::format("worker {} on {} did not reach its first epoch within {:.0f} s "
                        "(--start-timeout)",
                        id, host, seconds(options_.start_timeout)),
            options_.stop_grace);
        return;
      }
      membership_.advance(id, WorkerEvent::kUnwanted, now_.at);
      effects_.emplace_back(Stop{{Role::kWorker, id.value}, host, Duration{}});
      host_failed(host, fmt::format("worker {} did not become ready within {:.0f} s "
                                    "(--start-timeout)",
                                    id, seconds(options_.start_timeout)));
    } else if (w.state == WorkerState::kLeaving && age >= options_.leave_timeout &&
               leave_enforced_.insert(id).second) {
      note(Note::Kind::kFailure, "leave_enforced",
           fmt::format("worker {} on {} was told to leave {:.0f} s ago and is stopped now", id,
                       host, seconds(age)),
           id, host);
      effects_.emplace_back(Stop{{Role::kWorker, id.value}, host, options_.stop_grace});
    }
  }
}

void Job::check_boundary_timeout() {
  const std::vector<WorkerId> missing = boundary_.missing();
  if (initial() || boundary_.arrivals().empty() || missing.empty()) {
    waiting_since_.reset();
    return;
  }
  if (!waiting_since_) waiting_since_ = now_.at;
  if (now_.at - *waiting_since_ < options_.boundary_timeout) return;
  waiting_since_ = now_.at;  // a stop that got lost is said again
  for (const WorkerId id : missing) {
    const Host host = membership_.find(id)->host;
    note(Note::Kind::kFailure, "boundary_timeout",
         fmt::format("worker {} on {} has kept the others waiting at the boundary for {:.0f} s "
                     "(--boundary-timeout) and is stopped",
                     id, host, seconds(options_.boundary_timeout)),
         id, host);
    effects_.emplace_back(Stop{{Role::kWorker, id.value}, host, Duration{}});
  }
}

bool Job::cut_off() const {
  bool any = false;
  for (const auto& [host, h] : hosts_) {
    if (h.link == Link::kUp) return false;
    if (h.link == Link::kDown) any = true;
  }
  return any;
}

bool Job::servers_unseen() const {
  return !servers_.empty() && std::none_of(servers_.begin(), servers_.end(), [this](const auto& s) {
    const auto h = hosts_.find(s.second.host);
    return h != hosts_.end() && h->second.link == Link::kUp;
  });
}

bool Job::servers_told() const {
  return std::all_of(servers_.begin(), servers_.end(), [this](const auto& s) {
    const auto h = hosts_.find(s.second.host);
    return h != hosts_.end() && h->second.link == Link::kUp;
  });
}

std::set<Host> Job::unreachable() const {
  std::set<Host> out;
  for (const auto& [host, h] : hosts_)
    if (h.link != Link::kUp) out.insert(host);
  return out;
}

std::uint32_t Job::restart_budget(const Host& host) const {
  return options_.max_restarts * std::max(1U, membership_.wanted(host));
}

void Job::check_lives() {
  const bool alone = cut_off();
  const bool blind = servers_unseen();
  for (const auto& [host, h] : hosts_) {
    if (h.link != Link::kDown) continue;
    const Duration down = now_.at - liveness_.down_since(host).value_or(now_.at);
    const bool serves =
        std::any_of(servers_.begin(), servers_.end(),
                    [&host = host](const auto& s) { return s.second.host == host; });
    // A server's host is not given up lightly: that ends the job.
    if (serves && down < options_.ack_timeout) continue;
    // With no link at all, or no word from any server, it is we who are cut off: nothing is decided
    // until the agents have certainly stopped everything by themselves.
    if ((alone || (blind && !serves)) && down < options_.orphan_timeout) continue;
    std::optional<std::string> dead;
    bool waits_for_it = false;
    bool all_dead = true;
    for (const auto& [id, w] : membership_.workers()) {
      if (w.host != host || !may_run(w.state)) continue;
      // Who has not been told that the epoch began does nothing for it, whatever data flows.
      const bool untold = to_release_.count(id) > 0;
      const auto seen_by_servers = untold ? std::nullopt : std::optional(id);
      if (liveness_.life(host, seen_by_servers, now_.at) != Life::kDead) all_dead = false;
      if (down >= options_.liveness.dead_after && boundary_waits_for_unsupervised(id))
        waits_for_it = true;
    }
    if (all_dead && liveness_.life(host, std::nullopt, now_.at) == Life::kDead)
      dead = fmt::format("no sign of life for {:.1f} s", seconds(down));
    else if (waits_for_it)
      dead = "unsupervised, and out at this boundary";
    if (!dead) continue;
    hosts_[host].link = Link::kNone;
    liveness_.forget(host);
    note(Note::Kind::kFailure, "host_lost", fmt::format("{} is lost: {}", host, *dead),
         std::nullopt, host);
    const Host lost = host;
    processes_lost(lost, *dead);
    if (!ending_) record(AgentKnown{lost, {}, 0});
    effects_.emplace_back(ReleaseHost{lost});
    return;  // hosts_ may have changed; the next tick looks again
  }
}

bool Job::boundary_waits_for_unsupervised(WorkerId worker) const {
  const std::vector<WorkerId> missing = boundary_.missing();
  return !boundary_.arrivals().empty() &&
         std::find(missing.begin(), missing.end(), worker) != missing.end() &&
         std::all_of(missing.begin(), missing.end(), [this](WorkerId id) {
           return liveness_.life(membership_.find(id)->host, id, now_.at) == Life::kUnsupervised;
         });
}

// ---------------------------------------------------------------- small things

void Job::tell_commit(ServerId id) {
  ServerCommit m;
  m.term = term_;
  m.generation = boundary_.generation();
  m.epoch = boundary_.epoch().value_or(Epoch(0));
  m.boundary = boundary_.members() == boundary_.contributors();
  m.contributors = boundary_.contributors();
  effects_.emplace_back(TellCommit{id, servers_.at(id).host, std::move(m)});
}

void Job::end(int exit_code, std::string message, Duration grace) {
  if (ending_) return;
  record(JobEnding{exit_code, message});
  effects_.emplace_back(End{exit_code, std::move(message), grace});
}

void Job::note(Note::Kind kind, std::string what, std::string text, std::optional<WorkerId> worker,
               std::optional<Host> host) {
  effects_.emplace_back(Note{kind, std::move(what), std::move(text), worker, std::move(host)});
}

bool Job::servers_listen() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& s) { return !s.second.address.empty(); });
}

std::vector<ServerId> Job::server_ids() const {
  std::vector<ServerId> ids;
  for (const auto& [id, s] : servers_) ids.push_back(id);
  return ids;
}

Servers Job::server_list() const {
  Servers list;
  for (const auto& [id, s] : servers_) list.servers.push_back({id, s.address, s.port});
  return list;
}

std::string_view Job::phase() const {
  if (ending_) return "ended";
  if (finishing_) return "finishing";
  return initial() ? "starting" : "running";
}

}  // namespace dt
