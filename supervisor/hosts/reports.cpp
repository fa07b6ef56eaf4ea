#include "supervisor/hosts/reports.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "core/base/lookup.h"
#include "io/clock.h"
#include "supervisor/control/job_figures.h"
#include "supervisor/files/error_file.h"
#include "supervisor/hosts/checkpoint_keeper.h"

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
      if (!is_past) on(host, FromProcess{p.process, type, body});
    }
    if (p.exit) ended(p.process, *p.exit, "", false);
  }
  checkpoints_.look_on(host, state.processes);
}

// ---------------------------------------------------------------- messages of agents

template <class... Messages>
void AgentReports::dispatch(const Host& host, const auto& from, const auto& frame) {
  // A user's program may send anything: only an agent's malformed message is worth a line.
  constexpr bool kIsAgent = std::is_same_v<std::remove_cvref_t<decltype(from)>, Host>;
  const auto take = [&]<class Message>(std::type_identity<Message>) {
    if (frame.type != Message::kType) return false;
    if (const auto m = wire::parse<Message>(frame.body))
      on(from, *m);
    else if (kIsAgent)
      context_.log.warn("{}: {}", host, m.error().message);
    return true;
  };
  (void)(take(std::type_identity<Messages>()) || ...);
}

void AgentReports::frame(const Host& host, const wire::Frame& frame) {
  // Beat is not among them: the link has noted that the agent lives.
  dispatch<FromProcess, dt::Output, OutputEnded, ProcessStarted, ProcessFailed, ProcessExited,
           FolderChecked, Usage, ProcessState, AgentPlace, GpuHealth, KeptOut, dt::Notice>(
      host, host, frame);
}

void AgentReports::on(const Host&, const ProcessStarted& m) {
  processes_[m.process].pid = m.pid;
  if (m.process.role == Role::kWorker) context_.post(WorkerStarted{WorkerId(m.process.id)});
}

void AgentReports::on(const Host& host, const dt::Output& m) {
  if (checkpoints_.owns(m.process)) {
    output_.discard(host, m);
    return checkpoints_.output(m.process, m.bytes);
  }
  if (m.process.role == Role::kPrepare) prepares_.output(m.process, m.bytes);
  figures_.output(m.process, io::steady_now());
  output_.write(host, m);
}

void AgentReports::on(const Host& host, const dt::Notice& m) {
  const Duration left = std::chrono::milliseconds(m.deadline_ms);
  context_.post(NoticeGiven{host, left, m.text, m.is_repeated});
}

void AgentReports::on(const Host& host, const Usage& m) {
  for (const auto& [process, bytes] : m.resident) {
    ProcessNotes* notes = find_in(processes_, process);
    if (!notes) continue;
    figures_.resident(process, bytes);
    const bool is_held = std::ranges::count(m.held, process) > 0;
    if (is_held && !notes->is_held)
      context_.note(Note::kFailure, "output_waits",
                    fmt::format("{} on {} has to wait again and again: it writes more output than "
                                "the shared volume takes",
                                to_string(process), host),
                    host);
    notes->is_held = is_held;
  }
}

void AgentReports::on(const Host& host, const GpuHealth& m) {
  HostNotes& notes = hosts_[host];
  const auto note_new = [&](const std::string& which, std::vector<std::string> troubles,
                            const char* event = "gpu_trouble") {
    std::vector<std::string>& before = notes.gpu_troubles[event + which];
    for (const std::string& trouble : troubles)
      if (std::ranges::find(before, trouble) == before.end())
        context_.note(Note::kFailure, event, fmt::format("{} on {}: {}", which, host, trouble),
                      host);
    before = std::move(troubles);
  };
  for (GpuReport gpu : m.gpus) {
    gpu.held_back = 0;  // comes and goes with the load: status shows it
    const std::string which = fmt::format("GPU {}", gpu.index);
    note_new(which, troubles_of(gpu));
    if (const std::string error = programs_error_of(gpu); !error.empty())
      note_new(which, {error}, "gpu_program_error");
  }
  std::vector<std::string> all;
  if (!m.trouble.empty()) all.push_back(m.trouble);
  note_new("the GPUs", std::move(all));
  notes.gpus = m;
  warn_of_gpus(host, m);
}

void AgentReports::warn_of_gpus(const Host& host, const GpuHealth& m) {
  std::map<std::uint32_t, WorkerId> owners;
  for (const auto& [worker, gpus] : m.workers) {
    if (has_warned_of_gpus_ || !io::deals_gpus(context_.spec)) return;
    std::string why;
    if (gpus.empty() && !m.gpus.empty())
      why = fmt::format("worker {} has no GPU: CUDA_VISIBLE_DEVICES there names none of its {}",
                        worker, m.gpus.size());
    for (const std::uint32_t gpu : gpus)
      if (const auto [owner, is_new] = owners.emplace(gpu, worker); !is_new)
        why = fmt::format("workers {} and {} share GPU {}: fewer slots=, or --gpus-per-worker",
                          owner->second, worker, gpu);
    if (why.empty()) continue;
    has_warned_of_gpus_ = true;
    context_.note(Note::kRefusal, "gpus_lacking", fmt::format("{}: {}", host, why), host);
  }
}

// ---------------------------------------------------------------- messages of processes

void AgentReports::on(const Host& host, const FromProcess& m) {
  const auto [role, id] = m.process;
  if (role == Role::kWorker)
    dispatch<OpenedKvStore, Arrive, Progress, Figures, ServersHeard>(host, WorkerId(id), m);
  else if (role == Role::kServer)
    dispatch<ServerReady, CommitAck, Saved, Traffic, KeptOut>(host, ServerId(id), m);
  if (m.type == ErrorFile::kType && role == Role::kWorker)
    if (const auto file = wire::parse<ErrorFile>(m.body))
      processes_[m.process].last_words = error_message(file->json);
  if (m.type != GivingUp::kType) return;
  if (const auto last = wire::parse<GivingUp>(m.body)) gave_up(host, m.process, *last);
}

void AgentReports::on(WorkerId worker, const Progress& m) {
  figures_.progress(worker, m.step, io::steady_now());
  context_.post(FromWorker<Progress>{worker, m});
}

void AgentReports::on(WorkerId worker, const Figures& m) {
  const auto known = figures_.of({Role::kWorker, worker.value}).figures;
  // The job machine wants no more of them than the steps of an epoch and what the worker waits in.
  const Figures before = known.value_or(Figures{});
  const bool is_news = (m.steps_in_epoch > 0 && m.steps_in_epoch != before.steps_in_epoch) ||
                       m.waits_in != before.waits_in || m.waits_key != before.waits_key;
  if (is_news) context_.post(FromWorker<Figures>{worker, m});
  figures_.figures(worker, m, io::steady_now());
}

void AgentReports::on(ServerId server, const Traffic& m) {
  figures_.traffic(server, m);
  context_.post(FromServer<Traffic>{server, m});
}

void AgentReports::on(ServerId server, const ServerReady& m) {
  ProcessNotes& notes = processes_[{Role::kServer, server.value}];
  notes.device = m.device;
  notes.device_note = m.device_note;
  context_.post(FromServer<ServerReady>{server, m});
}

void AgentReports::gave_up(const Host& host, ProcessId process, const GivingUp& m) {
  processes_[process].last_words = m.why;
  if (m.is_checkpoint && process.role == Role::kServer)
    context_.post(FromServer<GivingUp>{ServerId(process.id), m});
  else
    context_.note(Note::kFailure, "gave_up",
                  fmt::format("{} on {}: {}", to_string(process), host, m.why), host);
}

void AgentReports::ended(ProcessId process, ExitStatus status, std::string why, bool never_ran,
                         bool has_output) {
  if (checkpoints_.owns(process)) return checkpoints_.ended(process, status, why);
  if (!has_output) output_.close(process);
  figures_.forget(process);
  const auto p = processes_.find(process);
  if (p != processes_.end() && why.empty() && !p->second.last_words.empty()) {
    if (process.role == Role::kServer) why = p->second.last_words;
    // A worker that ends well has nothing to explain.
    if (process.role == Role::kWorker && !status.clean())
      why = fmt::format("{}: {}", to_string(status), p->second.last_words);
  }
  if (process.role != Role::kPrepare)
    return context_.post(ProcessEnded{process, status, std::move(why), never_ran});
  processes_.erase(process);
  prepares_.ended(process, status, std::move(why), never_ran);
}

}  // namespace dt::supervisor
