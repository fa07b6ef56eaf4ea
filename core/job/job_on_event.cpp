#include <algorithm>

#include "core/job/job.h"
#include "core/job/job_text.h"
#include "core/job/notes.h"
#include "core/protocol/exit_code.h"

namespace dt {

void Job::on(const HostsAccepted& e) {
  if (e.hosts == membership_.file()) return;
  for (const Host& host : membership_.refused_removals(e.hosts))
    job_.out.note(Note::Kind::kRefusal, "base_host_kept",
                  fmt::format("{} is a host of the initial launch: its {} worker(s) stay", host,
                              membership_.base_count(host)),
                  std::nullopt, host);
  job_.out.record(FileTaken{membership_.last_edit().next(), e.hosts});
  job_.out.note(Note::Kind::kInfo, "file_accepted",
                fmt::format("host_worker accepted: {}", join_hosts(e.hosts)));
  if (const auto& beyond = membership_.beyond_limit(); !beyond.empty())
    job_.out.note(Note::Kind::kRefusal, "beyond_max_workers",
                  fmt::format("beyond --max-workers {}, and started when others go: {}",
                              job_.options.limits.most, join_hosts(beyond)));
  if (!job_.opened)
    job_.out.note(
        Note::Kind::kRefusal, "opaque",
        "the command has not opened a distributed kvstore: the set of workers cannot change "
        "until it does");
}

void Job::on(const AgentAttached& e) {
  if (hosts_.is_replaced(e))
    processes_lost(e.host, "its agent was replaced: everything there is dead", false);
  hosts_.attached(e);
  if (job_.ending) return;

  servers_.attached(e.host, e.processes);
  for (const ProcessReport& p : e.processes) {
    // Left over from before its host was given up as lost: fenced, and stopped now.
    const WorkerId id(p.process.id);
    if (p.process.role != Role::kWorker || id >= membership_.next_id()) continue;
    const Worker* w = membership_.find(id);
    if (w && w->state != WorkerState::kGone) continue;
    if (!p.exit)
      job_.out.add(Stop{p.process, e.host, Duration{}});
    else if (!w)
      job_.out.add(Acknowledge{p.process, e.host});
  }
  std::vector<WorkerId> here;
  for (const auto& [id, w] : membership_.workers())
    if (w.host == e.host && w.state != WorkerState::kGone) here.push_back(id);
  for (const WorkerId id : here) {
    const ProcessId process{Role::kWorker, id.value};
    if (std::any_of(e.processes.begin(), e.processes.end(),
                    [process](const ProcessReport& p) { return p.process == process; }))
      say_again(id);
    else
      never_heard_of(id);
    if (job_.ending) return;
  }
}

void Job::say_again(WorkerId id) {
  Worker& w = *membership_.find(id);
  w.maybe_started = false;
  // A start journalled in an earlier term: the agent knows more than the journal.
  if (w.state == WorkerState::kSeen) membership_.advance(id, WorkerEvent::kHostChosen, job_.now());
  if (w.state == WorkerState::kPreparing)
    membership_.advance(id, WorkerEvent::kStartSent, job_.now());
  if (servers_.all_listen()) job_.out.add(TellServers{id, w.host, servers_.list()});
  const bool enforced = leave_enforced_.count(id) > 0;
  if (w.state == WorkerState::kStopping || enforced)
    job_.out.add(Stop{{Role::kWorker, id.value}, w.host, job_.options.stop_grace});
  if (w.state == WorkerState::kMember && job_.boundary.members() != job_.boundary.contributors())
    job_.out.add(TellShrunk{
        id, w.host, Shrunk{job_.boundary.generation(), job_.boundary.contributors().front()}});
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
      membership_.advance(id, WorkerEvent::kStartLost, job_.now());
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

void Job::on(const AgentMoved& e) { hosts_.moved(e); }

void Job::on(const AgentDetached& e) {
  if (!e.gone) return hosts_.detached(e);
  hosts_.agent_gone(e.host);
  processes_lost(e.host, fmt::format("its agent is gone ({})", e.why), false);
  hosts_.forget_agent(e.host);
}

void Job::on(const AgentSilent& e) { hosts_.silent(e); }

void Job::on(const AgentHeard& e) { hosts_.heard(e); }

void Job::on(const AttachFailed& e) {
  if (!hosts_.attach_failed(e.host)) return;
  host_failed(e.host, "reach", e.why);
  servers_.host_failed(e.host, e.why);
}

void Job::on(const PrepareEnded& e) {
  if (!hosts_.prepare_ended(e.host)) return;  // the host was let go meanwhile
  if (e.ok)
    hosts_.prepared(e.host);
  else
    host_failed(e.host, "prepare", fmt::format("prepare-data failed: {}", e.why));
}

void Job::on(const WorkerStarted& e) {
  if (Worker* w = membership_.find(e.worker)) w->why.clear();
}

void Job::on(const ProcessEnded& e) {
  if (e.process.role == Role::kServer) return servers_.ended(e);
  const Worker* w = membership_.find(WorkerId(e.process.id));
  if (e.process.role != Role::kWorker || !w) return;
  if (w->state != WorkerState::kGone) worker_ended(e);
  job_.out.add(Acknowledge{e.process, w->host});
}

void Job::worker_ended(const ProcessEnded& e) {
  const WorkerId id(e.process.id);
  const Worker* w = membership_.find(id);
  ExitStatus status = e.status;
  if (e.never_ran && status.clean()) status.code = kExitCommandFailed;
  const std::string reason = e.why.empty() ? to_string(status) : e.why;
  const Host host = w->host;
  const bool base_start = w->base && job_.initial();
  const bool newcomer = on_the_way(w->state) && !base_start;
  const bool member = w->state == WorkerState::kMember || base_start;
  if (newcomer) {
    worker_gone(id, status, fmt::format("ended before it joined: {}", reason));
    host_failed(host, "start", fmt::format("worker {} ended before it joined: {}", id, reason));
  } else {
    if (member && !status.clean()) lost_time_.member_died(job_.now());
    worker_gone(id, status, status.clean() ? "" : e.why);
    if (member && !job_.initial() && !status.clean() && !job_.finishing())
      hosts_.restart_later(host, id, reason, restart_budget(host));
  }
}

void Job::on(const StoreOpened& e) {
  job_.opened = true;
  if (Worker* w = membership_.find(e.worker)) w->opened = true;
}

void Job::on(const WorkerArrived& e) {
  Worker* w = membership_.find(e.worker);
  if (!w) return;
  job_.opened = true;
  w->opened = true;
  // It came before the servers were replaced, or does not know that: it comes again.
  if (e.servers != servers_.since() && w->state != WorkerState::kLeaving) return;
  switch (w->state) {
    case WorkerState::kSeen:
    case WorkerState::kPreparing:
    case WorkerState::kStarting: {
      membership_.advance(e.worker, WorkerEvent::kJoined, job_.now());
      if (w->base && job_.initial()) {
        static_cast<void>(
            job_.boundary.arrive(e.worker, job_.options.first_epoch.value_or(e.epoch)));
      } else {
        job_.out.note(
            Note::Kind::kInfo, "worker_warm",
            fmt::format("worker {} on {} is ready and joins at the next epoch", e.worker, w->host),
            e.worker, w->host);
      }
      break;
    }
    case WorkerState::kMember:
      if (e.join && !job_.initial() && !job_.boundary.returns_to()) {
        job_.boundary.await_release(e.worker);
        break;
      }
      switch (job_.boundary.arrive(e.worker, e.epoch)) {
        case Boundary::Arrival::kCounted:
          if (!job_.initial() && !job_.boundary.returns_to() && lost_time_.arrived(e.worker))
            stalls_.doing(e.worker);
          break;
        case Boundary::Arrival::kReleased:
          job_.boundary.await_release(e.worker);
          break;
        case Boundary::Arrival::kWrong:
          w->why = fmt::format("it came to epoch {} while the job is in epoch {}", e.epoch,
                               job_.boundary.epoch()->value);
          job_.out.note(Note::Kind::kFailure, "wrong_epoch",
                        fmt::format("worker {} on {} is stopped: {}", e.worker, w->host, w->why),
                        e.worker, w->host);
          job_.out.add(Stop{{Role::kWorker, e.worker.value}, w->host, Duration{}});
          break;
      }
      break;
    case WorkerState::kLeaving:
      job_.boundary.await_release(e.worker);
      break;
    case WorkerState::kWarm:
    case WorkerState::kStopping:
    case WorkerState::kGone:
      break;
  }
}

void Job::on(const ServerListening& e) {
  if (!servers_.listening(e)) return;
  std::vector<WorkerId> running;
  for (const auto& [id, w] : membership_.workers())
    if (may_run(w.state)) running.push_back(id);
  for (const WorkerId id : running) {
    Worker& w = *membership_.find(id);
    job_.out.add(TellServers{id, w.host, servers_.list()});
    if (w.state == WorkerState::kStarting) w.since = job_.now();  // only now it can connect
  }
}

void Job::on(const CommitAcked& e) { servers_.acked(e); }

void Job::on(const TrafficSeen& e) {
  if (!servers_.has(e.server)) return;
  for (const WorkerId id : e.alive) hosts_.liveness().traffic(id, job_.now());
  for (const WorkerId id : e.rounds.busy) {
    if (Worker* w = membership_.find(id)) w->active = job_.now();
    stalls_.doing(id);
  }
  hang_watch_.signs_of_life(e.alive, e.disconnected, job_.now());
  hang_watch_.report(e.server, e.rounds);
  servers_.reported(e);
}

void Job::on(const ServerDataSeen& e) {
  const Worker* w = membership_.find(e.worker);
  if (!w || w->state == WorkerState::kGone) return;
  servers_.data_seen(e);
}

void Job::on(const WorkerProgress& e) {
  if (hang_watch_.progress(e.worker, e.epoch, e.step, job_.now())) stalls_.doing(e.worker);
}

void Job::on(const ProcessInspected& e) {
  if (e.process.role == Role::kServer) return servers_.inspected(ServerId(e.process.id), e.text);
  if (Stalls::Stall* stall = stalls_.find(WorkerId(e.process.id))) stall->process = e.text;
}

void Job::on(const ServerSaved& e) { servers_.saved(e); }

void Job::on(const CheckpointSealed& e) { saver_.sealed(e); }

void Job::on(const CheckpointUnusable& e) { servers_.checkpoint_unusable(e); }

void Job::on(const CheckpointPlaceSeen& e) { servers_.place_seen(e); }

void Job::on(const PlacesAsked& e) {
  const std::uint32_t count = std::min(e.count, membership_.empty_places(e.host));
  if (count > 0) job_.out.record(PlacesWanted{e.host, count});
}

void Job::on(const StopAsked& e) { job_.end(e.exit_code, e.why); }

void Job::on(const Tick&) {
  lost_time_.tick();
  check_lives();
  servers_.tick();
  check_deadlines();
}

// ---------------------------------------------------------------- what happens to workers

void Job::worker_gone(WorkerId id, ExitStatus status, const std::string& why) {
  const Worker* w = membership_.find(id);
  if (!w || w->state == WorkerState::kGone) return;
  WorkerGone gone{id, status, why, {}};
  Note ended{Note::Kind::kMeasure, "worker_ended",
             fmt::format("worker {} on {}: {}", id, w->host, why.empty() ? to_string(status) : why),
             id, w->host};
  ended.numbers.emplace_back("code", status.shell_code());
  const bool own_end = w->state != WorkerState::kLeaving && status.clean() && why.empty();
  if (w->was_member && !job_.initial() && !own_end)
    gone.log.push_back(job_.log_line(false, w->host));
  const Duration member = w->state == WorkerState::kMember ? job_.now() - w->since : Duration{};
  auto notes = change_notes(gone);
  job_.out.record(std::move(gone));
  job_.out.add(std::move(ended));
  for (Note& removed : notes) {
    if (member > Duration{}) removed.numbers.emplace_back("member_s", seconds(member));
    job_.out.add(std::move(removed));
  }
}

void Job::host_failed(const Host& host, std::string check, const std::string& why) {
  if (membership_.wanted(host) == 0 && !job_.initial()) return;  // its failure is nobody's loss
  // While a newcomer's process runs, a host that cannot be reached keeps nobody from going on.
  const bool keeps_waiting = check == "start" || !a_newcomer_runs();
  if (!job_.initial() && job_.boundary.contributors().empty() && keeps_waiting)
    job_.futile.add(at_host(host, why));
  hosts_.failed(host, std::move(check), why, job_.initial() && start_waits_for(host));
  if (job_.ending) return;
  // The same workers try again: an id is spent only on a process.
  std::vector<WorkerId> waiting;
  for (const auto& [id, w] : membership_.workers())
    if (w.host == host && (w.state == WorkerState::kSeen || w.state == WorkerState::kPreparing))
      waiting.push_back(id);
  for (const WorkerId id : waiting) {
    Worker& w = *membership_.find(id);
    membership_.advance(id, WorkerEvent::kHostFailed, job_.now());
    w.has_failed = true;
    w.why = why;
  }
}

bool Job::a_newcomer_runs() const {
  const auto& workers = membership_.workers();
  return std::any_of(workers.begin(), workers.end(), [](const auto& w) {
    return on_the_way(w.second.state) && may_run(w.second.state);
  });
}

bool Job::start_waits_for(const Host& host) const {
  const auto& workers = membership_.workers();
  return std::any_of(workers.begin(), workers.end(),
                     [&host](const auto& w) {
                       return w.second.base && w.second.host == host &&
                              (w.second.state == WorkerState::kSeen ||
                               w.second.state == WorkerState::kPreparing);
                     }) ||
         servers_.awaits_start_on(host);
}

void Job::processes_lost(const Host& host, const std::string& why, bool is_unreachable) {
  servers_.host_lost(host, why, is_unreachable);
  if (job_.ending) return;
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
    if (job_.ending) return;
  }
}

}  // namespace dt
