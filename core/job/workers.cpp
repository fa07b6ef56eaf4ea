#include "core/job/workers.h"

#include <algorithm>
#include <utility>

#include "core/base/quantity.h"
#include "core/job/notes.h"
#include "core/protocol/exit_code.h"

namespace dt {

void Workers::replayed() {
  for (const auto& [id, w] : membership_.workers())
    membership_.find(id)->maybe_started = hosts_.row(w.host).has_agent();
}

// ---------------------------------------------------------------- events

void Workers::file_accepted(const HostsAccepted& e) {
  if (are_same_lines(e.hosts, membership_.file())) return;
  for (const Host& host : membership_.refused_removals(e.hosts))
    job_.note(Note::kRefusal, "base_host_kept",
              fmt::format("{} is a host of the initial launch and keeps its {}", host,
                          count_text(membership_.base_count(host), "worker")),
              host);
  job_.record(FileTaken{membership_.last_edit().next(), e.hosts});
  job_.note(Note::kInfo, "file_accepted",
            fmt::format("host_worker accepted: {}", join_hosts(e.hosts)));
  if (const auto& beyond = membership_.beyond_limit(); !beyond.empty())
    job_.note(Note::kRefusal, "beyond_max_workers",
              fmt::format("beyond --max-workers {}, and started when others go: {}",
                          job_.options.limits.most, join_hosts(beyond)));
  if (!job_.opened && !job_.restarts_group())
    job_.note(Note::kRefusal, "opaque",
              "the command has not opened a distributed kvstore: the set of workers cannot change "
              "until it does");
}

void Workers::places_asked(const PlacesAsked& e) {
  const std::uint32_t count = std::min(e.count, membership_.empty_places(e.host));
  if (count > 0) job_.record(PlacesWanted{e.host, count});
}

void Workers::replace_asked(const ReplaceAsked& e) {
  // Another one may have come first: both waited while the journal was full.
  if (const std::string why_not = membership_.replace_objection(e.from, e.to); !why_not.empty())
    return job_.note(Note::kRefusal, "not_replaced",
                     fmt::format("{} does not get the places of {}: {}", e.to, e.from, why_not),
                     e.from);
  job_.record(BaseReplaced{e.from, e.to});
  job_.note(Note::kInfo, "base_replaced",
            fmt::format("{} gets the places of {} at the first epoch for which it is ready", e.to,
                        e.from),
            e.from);
}

void Workers::attached(const Host& host, const std::vector<ProcessReport>& there) {
  for (const ProcessReport& p : there) {
    // Left over from before its host was given up as lost: fenced, and stopped now.
    const WorkerId id(p.process.id);
    if (p.process.role != Role::kWorker || id >= membership_.next_id()) continue;
    const Worker* w = find(id);
    if (w && w->state != WorkerState::kGone) continue;
    if (!p.exit)
      job_.add(Stop{p.process, host});
    else if (!w)
      job_.add(Acknowledge{p.process, host});
  }
  for (const WorkerId id : live_on(host)) {
    const ProcessId process{Role::kWorker, id.value};
    if (const auto report = std::ranges::find(there, process, &ProcessReport::process);
        report != there.end())
      confirmed(id, report->pid != 0 || report->exit);
    else
      unknown_to_agent(id);
    if (job_.ending) return;
  }
}

void Workers::confirmed(WorkerId worker, bool runs) {
  Worker& w = *membership_.find(worker);
  w.maybe_started = false;
  job_.agenda.add(w.host);
  // A start journalled in an earlier term: the agent knows more than the journal.
  if (w.state == WorkerState::kSeen) advance(worker, WorkerEvent::kHostChosen);
  if (w.state == WorkerState::kPreparing) advance(worker, WorkerEvent::kStartSent);
  if (job_.restarts_group() && runs) advance(worker, WorkerEvent::kCommitted);
  if (job_.group_stops)
    job_.add(Stop{{Role::kWorker, worker.value}, w.host, job_.options.leave_timeout});
  if (servers_.all_listen()) job_.add(SendToWorker<Servers>{worker, w.host, servers_.list()});
  const bool enforced = leave_enforced_.contains(worker) || sent_away_.contains(worker);
  if (w.state == WorkerState::kStopping || enforced)
    job_.add(Stop{{Role::kWorker, worker.value}, w.host, job_.options.stop_grace});
  if (w.state == WorkerState::kMember && job_.boundary.members() != job_.boundary.contributors())
    job_.add(SendToWorker<Shrunk>{
        worker, w.host, Shrunk{job_.boundary.generation(), job_.boundary.contributors().front()}});
}

void Workers::unknown_to_agent(WorkerId worker) {
  Worker& w = *membership_.find(worker);
  w.maybe_started = false;
  job_.agenda.add(w.host);
  if (w.state == WorkerState::kStarting)
    advance(worker, WorkerEvent::kStartLost);
  else if (w.state == WorkerState::kStopping)
    gone(worker, ExitStatus{}, "it was never started");
  else if (may_run(w.state))
    ended({{Role::kWorker, worker.value}, {0, 9}, "its agent does not know it"});
}

void Workers::started(WorkerId worker) {
  Worker* w = membership_.find(worker);
  if (!w) return;
  if (w->state != WorkerState::kGone) w->why.clear();
  // Without epochs it is a member as soon as it runs.
  if (job_.restarts_group() && w->state == WorkerState::kStarting)
    advance(worker, WorkerEvent::kCommitted);
}

bool Workers::refuses_store(const Worker& w) {
  if (!job_.restarts_group()) return false;
  job_.end(kExitUsage,
           fmt::format("worker {} on {} opened a kvstore, and --on-change restart is for commands "
                       "that open none: start it without that option, its workers then join and "
                       "leave while the others go on",
                       w.id, w.host));
  return true;
}

void Workers::store_opened(WorkerId worker) {
  Worker* w = membership_.find(worker);
  if (w && refuses_store(*w)) return;
  job_.opened = true;
  if (w) w->opened = true;
}

bool Workers::arrived(const FromWorker<Arrive>& e) {
  Worker* w = membership_.find(e.worker);
  if (!w || refuses_store(*w)) return false;
  job_.opened = true;
  w->opened = true;
  // It came before the servers were replaced, or does not know that: it comes again.
  if (e.message.servers != servers_.since() && w->state != WorkerState::kLeaving) return false;
  if (w->state == WorkerState::kMember) return member_arrived(*w, e.message);
  if (w->state == WorkerState::kLeaving)
    job_.boundary.await_release(e.worker);
  else if (advance(e.worker, WorkerEvent::kJoined))
    joined(*w, e.message.epoch);
  return false;
}

void Workers::joined(Worker& w, Epoch epoch) {
  if (w.base && job_.initial())
    static_cast<void>(job_.boundary.arrive(w.id, job_.options.first_epoch.value_or(epoch)));
  else
    job_.note(Note::kInfo, "worker_warm",
              fmt::format("worker {} on {} is ready and joins at the next epoch", w.id, w.host),
              w.host, w.id);
}

bool Workers::member_arrived(Worker& w, const Arrive& m) {
  const bool is_ordinary = !job_.initial() && !job_.boundary.returns_to();
  const auto arrival =
      m.join && is_ordinary ? Boundary::Arrival::kReleased : job_.boundary.arrive(w.id, m.epoch);
  if (arrival == Boundary::Arrival::kCounted) return is_ordinary && lost_time_.arrived(w.id);
  if (arrival == Boundary::Arrival::kReleased) {
    job_.boundary.await_release(w.id);
    return false;
  }
  w.why = fmt::format(
      "it came to epoch {} while the job is in epoch {}: go on with view.epoch + 1, or use "
      "kv.epochs()",
      m.epoch, job_.boundary.epoch()->value);
  job_.note(Note::kFailure, "wrong_epoch",
            fmt::format("worker {} on {} is stopped: {}", w.id, w.host, w.why), w.host, w.id);
  job_.add(Stop{{Role::kWorker, w.id.value}, w.host});
  return false;
}

void Workers::busy(WorkerId worker) {
  if (Worker* w = membership_.find(worker)) w->active = job_.now();
}

void Workers::ended(const ProcessEnded& e) {
  const Worker* w = find(WorkerId(e.process.id));
  if (e.process.role != Role::kWorker || !w) return;
  if (w->state != WorkerState::kGone) process_ended(e);
  job_.add(Acknowledge{e.process, w->host});
}

void Workers::fence(WorkerId worker, std::string why) {
  process_ended({{Role::kWorker, worker.value}, {0, 9}, std::move(why)});
}

void Workers::process_ended(const ProcessEnded& e) {
  const WorkerId id(e.process.id);
  const Worker* w = find(id);
  ExitStatus status = e.status;
  if (e.never_ran && status.clean()) status.code = kExitCommandFailed;
  const std::string reason = e.why.empty() ? to_string(status) : e.why;
  const Host host = w->host;
  const Duration lived = job_.now() - w->since;
  const bool base_start = w->base && job_.initial();
  const bool newcomer = on_the_way(w->state) && !base_start;
  const bool member = w->state == WorkerState::kMember || base_start;
  const bool is_restarted =
      member && !job_.initial() && !status.clean() && !job_.finishing() && !leaves_with_host(*w);
  if (newcomer) {
    gone(id, status, fmt::format("ended before it joined: {}", reason));
    host_failed(host, "start", fmt::format("worker {} ended before it joined: {}", id, reason));
  } else {
    if (member && !status.clean()) lost_time_.member_died(job_.now());
    const bool never_began = e.never_ran && job_.restarts_group() && job_.group_restarts == 0;
    const std::string why = status.clean() ? "" : e.why;
    // The restart's note says it, too.
    gone(id, status, why, is_restarted || (member && job_.restarts_group() && !status.clean()));
    if (never_began && !job_.ending)
      job_.end(status.shell_code(),
               fmt::format("worker {} on {} could not be started: {}", id, host, reason));
    if (is_restarted)
      hosts_.restart_later(host, id, WorkerGone{id, status, why, {}}.death(), restart_budget(host),
                           lived);
  }
}

void Workers::send_away(WorkerId worker, Duration grace) {
  sent_away_.insert(worker);
  job_.add(Stop{{Role::kWorker, worker.value}, find(worker)->host, grace});
}

bool Workers::leaves_with_host(const Worker& worker) const {
  return job_.leaving.contains(worker.host) && (!job_.initial() || job_.restarts_group());
}

void Workers::gone(WorkerId worker, ExitStatus status, const std::string& why, bool is_told) {
  const Worker* known = find(worker);
  if (!known || known->state == WorkerState::kGone) return;
  const Worker w = *known;
  WorkerGone gone{worker, status, why, {}};
  const bool is_own = status.clean() && w.state == WorkerState::kMember && !job_.stops(w.host);
  if (leaves_with_host(w) && w.was_member && !is_own) {
    gone.why = "notice: " + job_.leaving.at(w.host).why;
    if (!status.clean()) gone.why += fmt::format("; {}", why.empty() ? to_string(status) : why);
  }
  const bool own_end = w.state != WorkerState::kLeaving && status.clean() && gone.why.empty();
  const bool is_logged =
      job_.initial() ? job_.restarts_after_death() && !job_.group_stops : w.was_member;
  if (is_logged && !own_end) gone.log = {job_.log_line(false, w.host)};
  job_.record(gone);
  job_.note(Note::kMeasure, "worker_ended",
            fmt::format("worker {} on {}: {}", worker, w.host, gone.reason()), w.host, worker,
            {{"code", status.shell_code()}});
  for (Note& removed : change_notes(gone)) {
    if (w.state == WorkerState::kMember && job_.now() > w.since)
      removed.numbers.emplace_back("member_s", seconds(job_.now() - w.since));
    if (is_told || w.state == WorkerState::kLeaving) removed.kind = Note::kMeasure;
    job_.add(std::move(removed));
  }
}

void Workers::host_failed(const Host& host, std::string check, const std::string& why,
                          bool is_final) {
  if (membership_.wanted(host) == 0 && !job_.initial()) return;  // no worker is wanted there
  // While a newcomer's process runs, the job does not depend on a host that cannot be reached.
  const bool newcomer_runs =
      membership_.count(WorkerState::kStarting) + membership_.count(WorkerState::kWarm) > 0;
  const bool keeps_waiting = check == "start" || !newcomer_runs;
  if (!job_.initial() && job_.boundary.contributors().empty() && keeps_waiting)
    job_.futile.add(at_host(host, why));
  hosts_.failed(host, std::move(check), why, job_.initial() && start_waits_for(host), is_final);
  if (job_.ending) return;
  // The same workers try again: an id is spent only on a process.
  for (const WorkerId id : membership_.workers_on(host)) {
    if (!advance(id, WorkerEvent::kHostFailed)) continue;
    Worker& w = *membership_.find(id);
    w.has_failed = true;
    w.why = why;
  }
}

void Workers::host_lost(const Host& host, const std::string& why) {
  for (const WorkerId id : live_on(host)) {
    const Worker& w = *find(id);
    const bool is_to_start = job_.group_restarts > 0;  // and was not yet
    if (!may_run(w.state) && !w.maybe_started && !is_to_start) continue;
    ended({{Role::kWorker, id.value}, {0, 9}, why});
    if (job_.ending) return;
  }
}

void Workers::servers_listen() {
  for (const auto& [id, w] : membership_.workers()) {
    if (!may_run(w.state)) continue;
    job_.add(SendToWorker<Servers>{id, w.host, servers_.list()});
    // Only now it can connect.
    if (w.state == WorkerState::kStarting) membership_.find(id)->since = job_.now();
  }
}

void Workers::check_start() {
  if (!job_.initial()) return;
  if (hosts_.start_has_failed()) return hosts_.end_failed_start();
  if (job_.restarts_group()) return;  // it has no epoch to come to
  // Until then all wait for the servers, which have deadlines of their own.
  if (!servers_.all_listen()) {
    start_counts_from_ = job_.now();
    return;
  }
  const bool someone_arrived = !job_.boundary.arrivals().empty();
  // An opaque command never arrives and need not.
  if (!someone_arrived && !job_.opened && !job_.options.is_start_timeout_set) return;
  const Worker* late = nullptr;
  for (const auto& [id, w] : membership_.workers()) {
    if (!w.base || w.state == WorkerState::kGone) continue;
    if (w.state != WorkerState::kStarting) {
      if (!someone_arrived) return;  // its host is not ready, and the others wait for it
      continue;
    }
    // Before the first arrival it may be a script without boundaries, which uses its store.
    Time since = someone_arrived ? w.since : std::max(w.since, w.active);
    since = std::max(since, start_counts_from_.value_or(since));
    const bool is_late = job_.now() - since >= job_.options.start_timeout;
    if (!is_late && !someone_arrived) return;
    // Workers that have opened their stores wait for one that has not.
    if (is_late && (!late || (late->opened && !w.opened))) late = &w;
  }
  if (!late) return;
  job_.end(kExitStartTimeout,
           fmt::format("worker {} on {} did not reach its first epoch within {:.0f} s "
                       "(--start-timeout){}",
                       late->id, late->host, seconds(job_.options.start_timeout),
                       someone_arrived ? "" : ", and no other worker did"));
}

void Workers::check_timeouts() {
  if (job_.ending) return;
  if (membership_.count(WorkerState::kStarting) + membership_.count(WorkerState::kLeaving) == 0)
    return;
  for (const auto& [id, w] : membership_.workers()) {
    if (w.state != WorkerState::kStarting && w.state != WorkerState::kLeaving) continue;
    const Host host = w.host;
    const Duration age = job_.now() - w.since;
    if (w.state == WorkerState::kStarting && age >= job_.options.start_timeout) {
      if (w.base && job_.initial()) continue;
      advance(id, WorkerEvent::kUnwanted);
      job_.add(Stop{{Role::kWorker, id.value}, host});
      host_failed(host, "start",
                  fmt::format("worker {} did not become ready within {:.0f} s "
                              "(--start-timeout)",
                              id, seconds(job_.options.start_timeout)));
    } else if (w.state == WorkerState::kLeaving && age >= job_.options.leave_timeout &&
               leave_enforced_.insert(id).second) {
      job_.note(Note::kFailure, "leave_enforced",
                fmt::format("worker {} on {} was released {:.0f} s ago and is stopped now", id,
                            host, seconds(age)),
                host, id);
      job_.add(Stop{{Role::kWorker, id.value}, host, job_.options.stop_grace});
    }
  }
}

void Workers::decide_exits() {
  if (job_.ending || !job_.finishing() || job_.boundary.arrivals().empty()) return;
  const auto undecided = job_.clean_exits;
  if (job_.initial()) {
    const auto& [id, host] = *undecided.begin();
    return job_.end(
        1, fmt::format("worker {} on {} ended with exit code 0 before its first epoch, and "
                       "others wait for it there",
                       id, host));
  }
  for (const auto& [id, host] : undecided) {
    const bool was_wanted = membership_.present(host) < membership_.wanted(host);
    const MemberLeft left{id, host, was_wanted, {job_.log_line(false, host)}};
    job_.record(left);
    for (Note& removed : change_notes(left)) job_.add(std::move(removed));
    if (!was_wanted) continue;
    job_.note(Note::kRefusal, "worker_exited",
              fmt::format("worker {} on {} ended with exit code 0 while others go on; {}", id, host,
                          stays_empty(host)),
              host, id);
  }
}

// ---------------------------------------------------------------- records

void Workers::apply(const JobBegan& r) {
  membership_.begin(r.workers, job_.now());
  std::vector<WorkerId> members;
  for (const auto& [id, w] : membership_.workers()) members.push_back(id);
  job_.boundary.begin(members);
}

void Workers::apply(const FileTaken& r) {
  std::map<Host, std::uint32_t> before;
  for (const auto& [host, h] : hosts_.all()) before[host] = membership_.wanted(host);
  membership_.take_file(r.edit, r.hosts, job_.now());
  // A host that was wanted less starts with a clean sheet when it is wanted again.
  for (const auto& [host, count] : before)
    if (membership_.wanted(host) < count) hosts_.wanted_less(host);
}

void Workers::apply(const WorkerAllotted& r) {
  membership_.add_worker(r.worker, r.host, r.edit, job_.now());
}

void Workers::apply(const Committed& r) {
  for (const WorkerId id : r.members) {
    if (advance(id, WorkerEvent::kCommitted)) hosts_.member_joined(find(id)->host);
  }
  for (const WorkerId id : r.leavers) advance(id, WorkerEvent::kRemoved);
  if (!r.boundary) return;
  if (!job_.finishing()) failure_ = {};  // earlier deaths are of no member of this view
  membership_.view_began(r.members, r.leavers, job_.now());
  forget_past();
}

void Workers::apply(const EpochBegan&) {
  // A base worker that took part in the first boundary was a member from the start.
  for (const WorkerId id : job_.boundary.contributors())
    if (const Worker* w = find(id)) membership_.advance(id, WorkerEvent::kCommitted, w->since);
  if (!job_.finishing()) failure_ = {};
  forget_past();
}

void Workers::apply(const GroupBegan& r) {
  std::vector<WorkerId> members;
  WorkerId id = r.first;
  for (const Host& host : r.workers) {
    Worker& w = membership_.add_worker(id, host, Edit{}, job_.now());
    w.base = w.was_member = true;
    members.push_back(id);
    hosts_.group_began(host);
    id = id.next();
  }
  job_.boundary.begin(members, r.generation);
  forget_past();
}

void Workers::forget_past() {
  membership_.forget_gone(job_.boundary.members(), job_.now());
  std::erase_if(leave_enforced_, [this](WorkerId id) { return !find(id); });
}

void Workers::apply(const WorkerGone& r) {
  Worker* w = membership_.find(r.worker);
  if (!w) return;
  const bool contributes = job_.boundary.contributes(r.worker);
  // A member that ends well and was not removed has come to its program's end.
  // Whatever its status says.
  const bool is_stopped = job_.group_stops || leaves_with_host(*w);
  if (contributes && r.status.clean() && r.why.empty() && !job_.group_stops)
    job_.clean_exits.emplace(r.worker, w->host);
  if (contributes && !r.status.clean() && !is_stopped) {
    if (first_death_ == 0) first_death_ = r.status.shell_code();
    if (job_.restarts_after_death() || (!job_.finishing() && !job_.initial())) {
      hosts_.member_died(w->host,
                         job_.moment_of(r.log.empty() ? job_.wall_ns() : r.log.front().wall_ns),
                         restart_budget(w->host));
      job_.futile.add(fmt::format("worker {} on {}: {}", w->id, w->host, r.reason()));
    }
    if (failure_.code == 0 && !job_.restarts_after_death())
      failure_ = {r.status.shell_code(),
                  fmt::format("worker {} on {} ended{}: {}", w->id, w->host,
                              job_.initial() && job_.has_epochs() ? " before its first epoch" : "",
                              r.reason())};
  }
  sent_away_.erase(r.worker);
  advance(r.worker, WorkerEvent::kEnded);
  w->why = r.death();
  w->left_with_host = leaves_with_host(*w);
  job_.boundary.forget(r.worker);
  lost_time_.gone(r.worker);
  hosts_.liveness().forget(r.worker);
  job_.log_lines += r.log.size();
}

void Workers::apply(const MemberLeft& r) {
  job_.clean_exits.erase(r.worker);
  job_.log_lines += r.log.size();
  if (!r.empties_place) return;
  membership_.empty_place(r.host);
  hosts_.member_left(
      r.host, fmt::format("worker {} ended with exit code 0 while others went on: {}", r.worker,
                          stays_empty(r.host)));
}

void Workers::apply(const PlacesWanted& r) {
  membership_.fill_places(r.host, r.count);
  hosts_.places_wanted(r.host);
}

void Workers::apply(const BaseReplaced& r) {
  membership_.replace_base(r.from, r.to, job_.restarts_group(), job_.now());
}

void Workers::apply(const RolledBack&) {
  for (const auto& [id, w] : membership_.workers()) advance(id, WorkerEvent::kServersReplaced);
}

// ---------------------------------------------------------------- questions

std::vector<WorkerId> Workers::live_on(const Host& host) const {
  std::vector<WorkerId> out;
  for (const WorkerId id : membership_.workers_on(host))
    if (find(id)->state != WorkerState::kGone) out.push_back(id);
  return out;
}

Time Workers::last_change() const {
  Time last{};
  for (const auto& [id, w] : membership_.workers()) last = std::max(last, w.since);
  return last;
}

bool Workers::start_waits_for(const Host& host) const {
  const auto waits = [this](WorkerId id) {
    const Worker& w = *find(id);
    return w.base && (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing);
  };
  return std::ranges::any_of(membership_.workers_on(host), waits) || servers_.awaits_start_on(host);
}

bool Workers::hears_a_contributor() const {
  const auto& all = job_.boundary.contributors();
  return std::ranges::any_of(all, [this](WorkerId id) {
    const Worker* w = find(id);
    return w && hosts_.is_heard(w->host);
  });
}

std::uint32_t Workers::restart_budget(const Host& host) const {
  return job_.options.max_restarts * std::max(1U, membership_.wanted(host));
}

std::uint32_t Workers::futile_limit() const {
  constexpr std::uint32_t kLeast = 10;
  constexpr std::uint32_t kPerWorker = 3;
  if (job_.options.max_futile_restarts > 0) return job_.options.max_futile_restarts;
  return std::max(kLeast, kPerWorker * membership_.wanted());
}

std::string Workers::stays_empty(const Host& host) const {
  if (!job_.options.is_elastic) return "its place stays empty";
  return fmt::format("its place stays empty until its line is written again, or: dtctl add {}",
                     host);
}

}  // namespace dt
