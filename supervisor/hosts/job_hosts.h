/// The hosts of a job, as its loop sees them: carries out there what the job machine asks for, and
/// posts what is heard from there as its events. Processes are started with their environment,
/// stopped, asked for, and handed messages by agents; what they report comes back by AgentReports.
/// The parts know only those that stand before them here.
#pragma once

#include <map>

#include "core/job/events.h"
#include "io/task_group.h"
#include "launcher/environment.h"
#include "supervisor/control/job_status.h"
#include "supervisor/hosts/checkpoint_keeper.h"
#include "supervisor/hosts/host_gate.h"
#include "supervisor/hosts/links.h"
#include "supervisor/hosts/prepare_runs.h"
#include "supervisor/hosts/reports.h"

namespace dt::supervisor {

/// One thread. Everything given outlives it.
class JobHosts {
 public:
  JobHosts(SupervisorContext& context, launcher::Backend& backend, HostLinks::Sync sync,
           ProcessOutput& output, JobFigures& figures);

  void carry_out(const Attach& e) { links_.attach(e.host, e.start); }
  void carry_out(const ReleaseHost& e);
  void carry_out(const Prepare& e) { context_.tasks.spawn(prepares_.run(e.host)); }
  void carry_out(const SealCheckpoint& e) { context_.tasks.spawn(checkpoints_.seal(e)); }
  void carry_out(const StartWorker& e);
  void carry_out(const StartServer& e);
  void carry_out(const Stop& e) {
    links_.send(e.host, StopProcess{e.process, milliseconds(e.grace)});
  }
  void carry_out(const Inspect& e) { links_.send(e.host, AskProcess{e.process}); }
  void carry_out(const Acknowledge& e);
  void carry_out(const SendCommit& e) { send(e.host, {Role::kServer, e.server.value}, e.message); }
  template <class Message>
  void carry_out(const SendToWorker<Message>& e) {
    send(e.host, {Role::kWorker, e.worker.value}, e.message);
  }

  /// The links to their agents: time, silence, the end.
  [[nodiscard]] HostLinks& links() { return links_; }
  [[nodiscard]] const HostLinks& links() const { return links_; }
  /// Looks for a place for checkpoints, again and again.
  io::awaitable<void> watch_place() { return checkpoints_.watch_place(); }

  /// What is known of each, for the status.
  [[nodiscard]] const std::map<ProcessId, ProcessNotes>& processes() const {
    return reports_.processes();
  }
  [[nodiscard]] const std::map<Host, HostNotes>& notes() const { return reports_.hosts(); }

 private:
  void start(const Host& host, StartProcess start, const launcher::ProcessFacts& facts);
  template <class Message>
  void send(const Host& host, ProcessId process, const Message& message) {
    links_.send(host, ToProcess{process, Message::kType, wire::body_of(message)});
  }

  SupervisorContext& context_;
  ProcessOutput& output_;
  HostLinks links_;
  Gate gate_;
  PrepareRuns prepares_;
  CheckpointKeeper checkpoints_;
  AgentReports reports_;
};

}  // namespace dt::supervisor
