#include "supervisor/agent_reports.h"

#include <algorithm>
#include <utility>

#include "io/clock.h"

namespace dt::supervisor {

// ---------------------------------------------------------------- an agent is attached

void AgentReports::admitted(const Host& host, const AgentState& state) {
  hosts_[host].gpus = {};
  prepares_.admitted(host, state.processes);
}

void AgentReports::attached(const Host& host, const AgentState& state) {
  for (const ProcessReport& p : state.processes) {
    if (checkpoints_.owns(p.process)) {
      if (p.exit) ended(p.process, *p.exit, "", false);
      continue;
    }
    if (p.process.role == Role::kPrepare && !prepares_.knows(p.process)) {
      // A data check that an earlier term began: it is run again.
      links_.send(host, StopProcess{p.process, 0});
      if (p.exit) links_.send(host, AckExit{p.process});
      continue;
    }
    processes_[p.process].pid = p.pid;
    output_.open(p.process, host);
    for (const auto& [type, body] : p.said) {
      // A sign of life must be of now.
      const bool is_past = type == Traffic::kType || type == ServersHeard::kType;
      if (!is_past) from_process(host, p.process, type, body);
    }
    if (p.exit) ended(p.process, *p.exit, "", false);
  }
  checkpoints_.look_on(host, state.processes);
}

// ---------------------------------------------------------------- messages of agents

template <class Message>
bool AgentReports::dispatch(const Host& host, const wire::Frame& frame) {
  if (frame.type != Message::kType) return false;
  const auto m = wire::parse<Message>(frame.body);
  if (m)
    on(host, *m);
  else
    shell_.log.warn("{}: {}", host, m.error().message);
  return true;
}

void AgentReports::frame(const Host& host, const wire::Frame& frame) {
  // Beat is not among them: the link has noted that the agent lives.
  static_cast<void>(dispatch<FromProcess>(host, frame) || dispatch<dt::Output>(host, frame) ||
                    dispatch<ProcessStarted>(host, frame) || dispatch<ProcessFailed>(host, frame) ||
                    dispatch<ProcessExited>(host, frame) || dispatch<FolderChecked>(host, frame) ||
                    dispatch<Usage>(host, frame) || dispatch<ProcessState>(host, frame) ||
                    dispatch<AgentPlace>(host, frame) || dispatch<GpuHealth>(host, frame) ||
                    dispatch<KeptOut>(host, frame));
}

void AgentReports::on(const Host&, const ProcessStarted& m) {
  processes_[m.process].pid = m.pid;
  if (m.process.role == Role::kWorker) shell_.post(WorkerStarted{WorkerId(m.process.id)});
}

void AgentReports::on(const Host&, const ProcessFailed& m) {
  ended(m.process, ExitStatus{127, 0}, m.why, true);
}

void AgentReports::on(const Host&, const ProcessExited& m) {
  ended(m.process, m.status, "", false);
}

void AgentReports::on(const Host&, const dt::Output& m) {
  if (checkpoints_.owns(m.process)) return checkpoints_.output(m.process, m.bytes);
  if (m.process.role == Role::kPrepare) prepares_.output(m.process, m.bytes);
  pulse_.output(m.process, io::steady_now());
  output_.write(m);
}

void AgentReports::on(const Host&, const Usage& m) {
  for (const auto& [process, bytes] : m.resident)
    if (processes_.count(process) > 0) pulse_.resident(process, bytes);
}

void AgentReports::on(const Host&, const ProcessState& m) {
  shell_.post(ProcessInspected{m.process, m.text});
}

void AgentReports::on(const Host& host, const GpuHealth& m) {
  HostNotes& notes = hosts_[host];
  const auto note_new = [&](const std::string& which, std::vector<std::string> troubles) {
    std::vector<std::string>& before = notes.gpu_troubles[which];
    for (const std::string& trouble : troubles)
      if (std::find(before.begin(), before.end(), trouble) == before.end())
        shell_.note(Note{Note::Kind::kFailure, "gpu_trouble",
                         fmt::format("{} on {}: {}", which, host, trouble), std::nullopt, host});
    before = std::move(troubles);
  };
  for (GpuReport gpu : m.gpus) {
    gpu.held_back = 0;  // comes and goes with the load: status shows it
    note_new(fmt::format("GPU {}", gpu.index), troubles_of(gpu));
  }
  std::vector<std::string> all;
  if (!m.trouble.empty()) all.push_back(m.trouble);
  note_new("the GPUs", std::move(all));
  notes.gpus = m;
}

// ---------------------------------------------------------------- messages of processes

void AgentReports::from_process(const Host& host, ProcessId process, std::uint16_t type,
                                const std::string& body) {
  if (process.role == Role::kWorker)
    from_worker(WorkerId(process.id), type, body);
  else if (process.role == Role::kServer)
    from_server(process, type, body);
  if (type != GivingUp::kType) return;
  if (const auto m = wire::parse<GivingUp>(body)) gave_up(host, process, *m);
}

void AgentReports::from_worker(WorkerId worker, std::uint16_t type, const std::string& body) {
  if (type == OpenedKvStore::kType) {
    shell_.post(StoreOpened{worker});
  } else if (type == Arrive::kType) {
    if (const auto m = wire::parse<Arrive>(body))
      shell_.post(WorkerArrived{worker, m->epoch, m->join, m->servers});
  } else if (type == Progress::kType) {
    if (const auto m = wire::parse<Progress>(body)) {
      pulse_.progress(worker, m->step, io::steady_now());
      shell_.post(WorkerProgress{worker, m->epoch, m->step});
    }
  } else if (type == ServersHeard::kType) {
    if (auto m = wire::parse<ServersHeard>(body))
      shell_.post(ServerDataSeen{worker, std::move(m->servers)});
  }
}

void AgentReports::from_server(ProcessId process, std::uint16_t type, const std::string& body) {
  const ServerId server(process.id);
  if (type == ServerReady::kType) {
    if (const auto m = wire::parse<ServerReady>(body)) {
      processes_[process].device = m->device;
      processes_[process].device_note = m->device_note;
      shell_.post(ServerListening{server, m->address, m->port});
    }
  } else if (type == CommitAck::kType) {
    if (const auto m = wire::parse<CommitAck>(body))
      shell_.post(CommitAcked{server, m->generation});
  } else if (type == Saved::kType) {
    if (auto m = wire::parse<Saved>(body)) shell_.post(ServerSaved{server, std::move(*m)});
  } else if (type == Traffic::kType) {
    if (const auto m = wire::parse<Traffic>(body))
      shell_.post(TrafficSeen{
          server, m->alive, {m->busy, m->owing, m->waiting}, m->disconnected, m->stuck});
  } else if (type == KeptOut::kType) {
    if (const auto m = wire::parse<KeptOut>(body)) processes_[process].kept_out = *m;
  }
}

void AgentReports::gave_up(const Host& host, ProcessId process, const GivingUp& m) {
  processes_[process].last_words = m.why;
  if (m.is_checkpoint && process.role == Role::kServer)
    shell_.post(CheckpointUnusable{ServerId(process.id), m.why});
  else
    shell_.note(Note{Note::Kind::kFailure, "gave_up",
                     fmt::format("{} on {}: {}", to_string(process), host, m.why), std::nullopt,
                     host});
}

void AgentReports::ended(ProcessId process, ExitStatus status, std::string why, bool never_ran) {
  if (checkpoints_.owns(process)) return checkpoints_.ended(process, status, why);
  output_.close(process);
  pulse_.forget(process);
  if (const auto p = processes_.find(process); p != processes_.end() && why.empty())
    if (process.role == Role::kServer) why = p->second.last_words;
  if (process.role != Role::kPrepare)
    return shell_.post(ProcessEnded{process, status, std::move(why), never_ran});
  processes_.erase(process);
  prepares_.ended(process, status, std::move(why), never_ran);
}

}  // namespace dt::supervisor
