#include <algorithm>
#include <random>

#include "core/protocol/gpu_health.h"
#include "io/clock.h"
#include "io/within.h"
#include "supervisor/hosts/prepare.h"
#include "supervisor/supervisor.h"

namespace dt::supervisor {
namespace {

/// Output kept of a data check, to tell why it failed.
constexpr std::size_t kTail = 2000;
/// How long the agent of an earlier stay may take to end before the host counts as failed.
constexpr Duration kFarewell = std::chrono::seconds(30);

}  // namespace

Supervisor::HostShell& Supervisor::shell(const Host& host) { return hosts_[host]; }

AgentLink& Supervisor::make_link(const Host& host) {
  HostShell& h = shell(host);
  AgentLink::Options options;
  options.job = spec_.job;
  options.host = host;
  options.term = term_;
  options.last_place = [this, host]() -> std::optional<AgentPlace> {
    const auto known = job_->hosts().find(host);
    if (known == job_->hosts().end() || !known->second.had_agent) return std::nullopt;
    return known->second.place;
  };
  options.seed = std::random_device{}();
  options.orphan_timeout_ms = milliseconds(spec_.rules.orphan_timeout);
  // A silent link is broken only when liveness has decided, or waits for something else.
  options.silence_limit =
      std::max(options.silence_limit, spec_.rules.liveness.dead_after + std::chrono::seconds(2));
  AgentLink::Callbacks callbacks;
  callbacks.attached = [this, host](const AgentState& state) { attached(host, state); };
  callbacks.frame = [this, host](const wire::Frame& frame) { heard(host, frame); };
  callbacks.down = [this, host](const Error& error, bool gone) { broke(host, error, gone); };
  h.link =
      std::make_unique<AgentLink>(executor_, *backend_, std::move(options), std::move(callbacks));
  h.ever_attached = false;
  h.leaving = false;
  group_.spawn(h.link->run());
  return *h.link;
}

bool Supervisor::awaits_agent_of_earlier_term(const Host& host) const {
  return job_->ending() || job_->hosts().at(host).link == HostState::Link::kDown;
}

io::awaitable<void> Supervisor::reattach(Host host) {
  // Processes may run there: it is tried until they count as lost.
  while (shell(host).address.empty() && awaits_agent_of_earlier_term(host)) {
    auto address = co_await backend_->address(host);
    if (address)
      shell(host).address = *address;
    else
      co_await io::sleep_for(std::chrono::seconds(1));
  }
  if (awaits_agent_of_earlier_term(host)) {
    if (!shell(host).link) make_link(host);
    shell(host).ever_attached = true;  // an earlier term was
    shell(host).link->attach(false);
  }
  --reattaching_;
}

io::awaitable<void> Supervisor::reach(Host host) {
  if (shell(host).address.empty()) {
    auto address = co_await backend_->address(host);
    if (!address) co_return cannot_attach(host, address.error().message);
    shell(host).address = *address;
  }
  if (options_.sync && synced_.count(host) == 0) {
    auto synced = co_await options_.sync(host);
    if (!synced) {
      cannot_attach(host, synced.error().message);
      co_return;
    }
    synced_.insert(host);
  }
  // The link of an earlier stay may still be saying goodbye.
  for (const Time until = io::steady_now() + kFarewell;
       shell(host).link && shell(host).leaving && !shell(host).link->ended();) {
    if (io::steady_now() >= until)
      co_return cannot_attach(host, "the host's previous agent has not ended");
    co_await io::sleep_for(std::chrono::milliseconds(20));
  }
  if (end_) co_return;
  if (shell(host).link && shell(host).link->ended()) shell(host).link.reset();
  if (!shell(host).link) make_link(host);
  shell(host).link->attach(true);
}

void Supervisor::cannot_attach(const Host& host, std::string why) {
  // Now, and not when status is asked for: it reads ssh's configuration.
  shell(host).reach_command = backend_->reach_command(host);
  post(AttachFailed{host, std::move(why)});
}

void Supervisor::attached(const Host& host, const AgentState& state) {
  if (!folder_checks_.begin(host, state, io::steady_now())) return admitted(host, state);
  send(host, CheckFolder{folder_checks_.folder()});
}

void Supervisor::kept_away(const Host& host, std::string why) {
  if (!folder_checks_.take(host)) return;
  HostShell& h = shell(host);
  if (h.leaving || !h.link) return;
  h.link->shut_down(0);
  h.leaving = true;
  why = fmt::format("{}: {}", host, why);
  if (h.ever_attached)
    post(AgentDetached{host, std::move(why), true});
  else
    cannot_attach(host, std::move(why));
}

void Supervisor::admitted(const Host& host, const AgentState& state) {
  folder_checks_.passed(host, state);
  HostShell& h = shell(host);
  h.ever_attached = true;
  h.cores = state.cores;
  h.machine = state.machine;
  h.gpus = {};
  // A data check whose start got lost with the link, or that died with its agent.
  const bool lost = std::any_of(prepares_.begin(), prepares_.end(), [&](const auto& entry) {
    const ProcessId process{Role::kPrepare, entry.first};
    return entry.second.host == host && !entry.second.forgotten && !entry.second.exit &&
           std::none_of(state.processes.begin(), state.processes.end(),
                        [&](const ProcessReport& p) { return p.process == process; });
  });
  if (lost) {
    forget_prepares(host);
    post(PrepareEnded{host, false, "the agent does not know of it"});
  }
  post(AgentAttached{host, state.boot_id, state.incarnation, state.processes, state.place});
  for (const ProcessReport& p : state.processes) {
    if (checkpoint_place_ && checkpoint_place_->is_ours(p.process)) {
      if (p.exit) ended(p.process, *p.exit, "", false);
      continue;
    }
    if (p.process.role == Role::kPrepare && prepares_.count(p.process.id) == 0) {
      // A data check that an earlier term began: nobody waits for it, it is run again.
      send(host, StopProcess{p.process, 0});
      if (p.exit) send(host, AckExit{p.process});
      continue;
    }
    processes_[p.process].pid = p.pid;
    output_->open(p.process, host);
    for (const auto& [type, body] : p.said) {
      const bool is_of_then = type == Traffic::kType || type == ServersHeard::kType;
      if (!is_of_then) said(host, p.process, type, body);  // a sign of life must be of now
    }
    if (p.exit) ended(p.process, *p.exit, "", false);
  }
  look_for_place(host, state.processes);
}

void Supervisor::broke(const Host& host, const Error& error, bool gone) {
  HostShell& h = shell(host);
  if (gone) forget_prepares(host);
  static_cast<void>(folder_checks_.take(host));
  if (h.leaving) return;
  if (h.ever_attached || gone)
    post(AgentDetached{host, error.message, gone});
  else
    cannot_attach(host, error.message);
}

void Supervisor::heard(const Host& host, const wire::Frame& frame) {
  const auto malformed = [&](const Error& error) { own_log_.warn("{}: {}", host, error.message); };
  switch (frame.type) {
    case ProcessStarted::kType: {
      const auto m = wire::parse<ProcessStarted>(frame.body);
      if (!m) return malformed(m.error());
      processes_[m->process].pid = m->pid;
      if (m->process.role == Role::kWorker) post(WorkerStarted{WorkerId(m->process.id)});
      return;
    }
    case ProcessFailed::kType: {
      const auto m = wire::parse<ProcessFailed>(frame.body);
      if (!m) return malformed(m.error());
      return ended(m->process, ExitStatus{127, 0}, m->why, true);
    }
    case ProcessExited::kType: {
      const auto m = wire::parse<ProcessExited>(frame.body);
      if (!m) return malformed(m.error());
      return ended(m->process, m->status, "", false);
    }
    case dt::Output::kType: {
      auto m = wire::parse<dt::Output>(frame.body);
      if (!m) return malformed(m.error());
      if (checkpoint_place_ && checkpoint_place_->is_ours(m->process))
        return checkpoint_place_->output(m->process, m->bytes);
      if (m->process.role == Role::kPrepare) {
        if (const auto run = prepares_.find(m->process.id); run != prepares_.end()) {
          run->second.tail += m->bytes;
          if (run->second.tail.size() > kTail)
            run->second.tail.erase(0, run->second.tail.size() - kTail);
        }
      }
      pulse_.output(m->process, io::steady_now());
      output_->write(*m);
      return;
    }
    case FolderChecked::kType: {
      const auto m = wire::parse<FolderChecked>(frame.body);
      if (!m) return malformed(m.error());
      if (m->folder != folder_checks_.folder()) return;
      if (m->error != 0) return kept_away(host, folder_checks_.trouble(m->error));
      if (const auto state = folder_checks_.take(host)) admitted(host, *state);
      return;
    }
    case Usage::kType: {
      const auto m = wire::parse<Usage>(frame.body);
      if (!m) return malformed(m.error());
      for (const auto& [process, bytes] : m->resident)
        if (processes_.count(process) > 0) pulse_.resident(process, bytes);
      return;
    }
    case ProcessState::kType: {
      const auto m = wire::parse<ProcessState>(frame.body);
      if (!m) return malformed(m.error());
      return post(ProcessInspected{m->process, m->text});
    }
    case FromProcess::kType: {
      const auto m = wire::parse<FromProcess>(frame.body);
      if (!m) return malformed(m.error());
      return said(host, m->process, m->type, m->body);
    }
    case AgentPlace::kType: {
      auto m = wire::parse<AgentPlace>(frame.body);
      if (!m) return malformed(m.error());
      return post(AgentMoved{host, std::move(*m)});
    }
    case GpuHealth::kType: {
      auto m = wire::parse<GpuHealth>(frame.body);
      if (!m) return malformed(m.error());
      tell_gpu_troubles(host, *m);
      shell(host).gpus = std::move(*m);
      return;
    }
    case KeptOut::kType: {
      const auto m = wire::parse<KeptOut>(frame.body);
      if (!m) return malformed(m.error());
      shell(host).kept_out = *m;
      return;
    }
    default:
      return;  // Beat says only that the agent lives, which the link has noted
  }
}

void Supervisor::tell_gpu_troubles(const Host& host, const GpuHealth& health) {
  auto& told = shell(host).gpu_troubles;
  const auto tell = [&](const std::string& which, std::vector<std::string> troubles) {
    std::vector<std::string>& before = told[which];
    for (const std::string& trouble : troubles)
      if (std::find(before.begin(), before.end(), trouble) == before.end())
        act(Note{Note::Kind::kFailure, "gpu_trouble",
                 fmt::format("{} on {}: {}", which, host, trouble), std::nullopt, host});
    before = std::move(troubles);
  };
  for (GpuReport gpu : health.gpus) {
    gpu.held_back = 0;  // comes and goes with the load: status shows it
    tell(fmt::format("GPU {}", gpu.index), troubles_of(gpu));
  }
  std::vector<std::string> all;
  if (!health.trouble.empty()) all.push_back(health.trouble);
  tell("the GPUs", std::move(all));
}

void Supervisor::said(const Host& host, ProcessId process, std::uint16_t type,
                      const std::string& body) {
  const WorkerId worker(process.id);
  const ServerId server(process.id);
  if (process.role == Role::kWorker) {
    if (type == OpenedKvStore::kType) {
      post(StoreOpened{worker});
    } else if (type == Arrive::kType) {
      if (const auto m = wire::parse<Arrive>(body))
        post(WorkerArrived{worker, m->epoch, m->join, m->servers});
    } else if (type == Progress::kType) {
      if (const auto m = wire::parse<Progress>(body)) {
        pulse_.progress(worker, m->step, io::steady_now());
        post(WorkerProgress{worker, m->epoch, m->step});
      }
    } else if (type == ServersHeard::kType) {
      if (auto m = wire::parse<ServersHeard>(body))
        post(ServerDataSeen{worker, std::move(m->servers)});
    }
  } else if (process.role == Role::kServer) {
    if (type == ServerReady::kType) {
      if (const auto m = wire::parse<ServerReady>(body)) {
        processes_[process].device = m->device;
        processes_[process].device_note = m->device_note;
        post(ServerListening{server, m->address, m->port});
      }
    } else if (type == CommitAck::kType) {
      if (const auto m = wire::parse<CommitAck>(body)) post(CommitAcked{server, m->generation});
    } else if (type == Saved::kType) {
      if (auto m = wire::parse<Saved>(body)) post(ServerSaved{server, std::move(*m)});
    } else if (type == Traffic::kType) {
      if (const auto m = wire::parse<Traffic>(body))
        post(TrafficSeen{
            server, m->alive, {m->busy, m->owing, m->waiting}, m->disconnected, m->stuck});
    } else if (type == KeptOut::kType) {
      if (const auto m = wire::parse<KeptOut>(body)) processes_[process].kept_out = *m;
    }
  }
  if (type == GivingUp::kType) {
    const auto m = wire::parse<GivingUp>(body);
    if (m) processes_[process].last_words = m->why;
    if (m && m->is_checkpoint && process.role == Role::kServer)
      post(CheckpointUnusable{server, m->why});
    else if (m)
      act(Note{Note::Kind::kFailure, "gave_up",
               fmt::format("{} on {}: {}", to_string(process), host, m->why), std::nullopt, host});
  }
}

void Supervisor::ended(ProcessId process, ExitStatus status, std::string why, bool never_ran) {
  if (checkpoint_place_ && checkpoint_place_->is_ours(process)) {
    const Host host = checkpoint_place_->ended(process, status, why);
    return send(host, AckExit{process});
  }
  output_->close(process);
  pulse_.forget(process);
  if (const auto p = processes_.find(process); p != processes_.end() && why.empty())
    if (process.role == Role::kServer) why = p->second.last_words;
  if (process.role != Role::kPrepare) {
    post(ProcessEnded{process, status, std::move(why), never_ran});
    return;
  }
  processes_.erase(process);
  const auto run = prepares_.find(process.id);
  if (run == prepares_.end()) return;
  if (never_ran)
    run->second.failed = std::move(why);
  else
    run->second.exit = status;
  run->second.ended->cancel();
}

io::awaitable<void> Supervisor::prepare(Host host) {
  const std::string mark = prepared_file(spec_.job_dir, shell(host).address);
  if (spec_.prepare_data.empty()) {
    // --require-prepared: somebody else makes the file. Hosts of the initial launch are trusted.
    const bool base =
        std::find(spec_.workers.begin(), spec_.workers.end(), host) != spec_.workers.end();
    for (;;) {
      auto there = co_await volume_.exists(mark);
      if (base || (there && *there)) break;
      HostShell& h = shell(host);
      if (h.leaving || !h.link) co_return post(PrepareEnded{host, false, "no longer wanted"});
      if (waits_told_.insert(host).second)
        act(Note{Note::Kind::kInfo, "prepare_waits", fmt::format("{} waits for {}", host, mark),
                 std::nullopt, host});
      co_await io::sleep_for(std::chrono::seconds(1));
    }
    co_return post(PrepareEnded{host, true, ""});
  }

  const std::uint32_t id = next_prepare_++;
  const ProcessId process{Role::kPrepare, id};
  PrepareRun& run = prepares_[id];
  run.host = host;
  run.ended = std::make_unique<io::asio::steady_timer>(executor_, spec_.prepare_timeout);
  StartProcess start;
  start.process = process;
  start.argv = {"/bin/sh", "-c", spec_.prepare_data};
  start.env = launcher::environment(spec_, facts_for(process, host));
  start.cwd = spec_.sync_dst_dir.empty() ? spec_.cwd : spec_.sync_dst_dir;
  output_->open(process, host);
  send(host, start);
  act(Note{Note::Kind::kInfo, "preparing", fmt::format("{}: prepare-data runs", host), std::nullopt,
           host});
  auto [ec] = co_await run.ended->async_wait(io::tok);
  if (run.forgotten) {
    output_->close(process);
    prepares_.erase(id);
    co_return;
  }
  PrepareEnded result{host, false, run.failed};
  if (run.exit && run.exit->clean()) {
    auto marked = co_await volume_.write_new(mark, "");
    result.ok = marked.has_value();
    if (!marked) result.why = marked.error().message;
  } else if (run.exit) {
    result.why = to_string(*run.exit);
  } else if (!ec) {
    send(host, StopProcess{process, 0});
    result.why =
        fmt::format("not done within {:.0f} s (--prepare-timeout)", seconds(spec_.prepare_timeout));
  }
  if (!result.ok && !run.tail.empty()) result.why += last_lines(run.tail);
  send(host, AckExit{process});
  prepares_.erase(id);
  post(std::move(result));
}

void Supervisor::forget_prepares(const Host& host) {
  for (auto& [id, run] : prepares_) {
    if (run.host != host) continue;
    run.forgotten = true;
    run.ended->cancel();
  }
}

const Host& Supervisor::host_of_rank_0(const Host& host) const {
  for (const WorkerId id : job_->boundary().contributors()) {
    const auto worker = job_->membership().workers().find(id);
    if (worker != job_->membership().workers().end() && worker->second.state != WorkerState::kGone)
      return worker->second.host;
  }
  return host;
}

std::string Supervisor::address_of(const Host& host) const {
  const auto there = hosts_.find(host);
  return there == hosts_.end() || there->second.address.empty() ? host.name : there->second.address;
}

AgentPlace Supervisor::place_of(const Host& host) const {
  const auto there = job_->hosts().find(host);
  return there == job_->hosts().end() ? AgentPlace{} : there->second.place;
}

launcher::ProcessFacts Supervisor::facts_for(ProcessId process, const Host& host) const {
  launcher::ProcessFacts facts;
  facts.process = process;
  facts.host = host;
  facts.secret = secret_;
  facts.num_workers = static_cast<std::uint32_t>(job_->boundary().members().size());
  facts.num_servers = static_cast<std::uint32_t>(spec_.servers.size());
  const Host& first = spec_.workers.front();
  facts.root = {address_of(first), place_of(first).root_port};
  const auto here = hosts_.find(host);
  if (here != hosts_.end()) {
    facts.address = here->second.address;
    facts.cores = here->second.cores;
  }
  const Host& leads = host_of_rank_0(host);
  facts.master = {address_of(leads), place_of(leads).master_port};
  std::uint32_t on_host = 0;
  std::uint32_t on_machine = 0;
  for (const auto& [id, w] : job_->membership().workers()) {
    if (w.state == WorkerState::kGone) continue;
    const auto there = hosts_.find(w.host);
    if (w.host == host) {
      if (process == ProcessId{Role::kWorker, id.value}) facts.local_rank = on_host;
      ++on_host;
    }
    if (w.host == host ||
        (here != hosts_.end() && there != hosts_.end() && !here->second.machine.empty() &&
         there->second.machine == here->second.machine))
      ++on_machine;
  }
  facts.local_world_size = std::max(1U, on_host);
  facts.workers_on_machine = std::max(1U, on_machine);
  for (const auto& [id, s] : job_->servers()) {
    if (process == ProcessId{Role::kServer, id.value}) break;
    if (s.host == host && process.role == Role::kServer) ++facts.index_on_host;
  }
  return facts;
}

}  // namespace dt::supervisor
