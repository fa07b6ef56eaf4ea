/// What agents and the processes under them report, as events of the job machine, notes for people
/// and figures for the status.
#pragma once

#include <map>
#include <string>

#include "core/protocol/control_messages.h"
#include "core/protocol/gpu_health.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/control/job_status.h"
#include "supervisor/hosts/links.h"
#include "supervisor/hosts/prepare_runs.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

class CheckpointKeeper;
class JobFigures;

/// One thread. Everything given outlives it.
class AgentReports final : public LinkListener {
 public:
  AgentReports(SupervisorContext& context, HostLinks& links, PrepareRuns& prepares,
               CheckpointKeeper& checkpoints, ProcessOutput& output, JobFigures& figures)
      : context_(context),
        links_(links),
        prepares_(prepares),
        checkpoints_(checkpoints),
        output_(output),
        figures_(figures) {}

  void admitted(const Host& host, const AgentState& state) override;
  void attached(const Host& host, const AgentState& state) override;
  void frame(const Host& host, const wire::Frame& frame) override;
  void link_begins(const Host& host) override { output_.link_begins(host); }
  void agent_gone(const Host& host) override { prepares_.forget(host); }

  /// The process's end is journalled.
  void forget(ProcessId process) { processes_.erase(process); }

  [[nodiscard]] const std::map<ProcessId, ProcessNotes>& processes() const { return processes_; }
  [[nodiscard]] const std::map<Host, HostNotes>& hosts() const { return hosts_; }

 private:
  // Messages of the agent.
  void on(const Host& host, const ProcessStarted& m);
  void on(const Host&, const ProcessFailed& m) { ended(m.process, {127, 0}, m.why, true); }
  void on(const Host&, const ProcessExited& m) {
    ended(m.process, m.status, "", false, m.has_output);
  }
  void on(const Host&, const OutputEnded& m) { output_.close(m.process); }
  void on(const Host& host, const dt::Output& m);
  void on(const Host& host, const FolderChecked& m) { links_.folder_checked(host, m); }
  void on(const Host& host, const dt::Notice& m);
  void on(const Host& host, const Usage& m);
  void on(const Host&, const ProcessState& m) {
    context_.post(ProcessInspected{m.process, m.text});
  }
  void on(const Host& host, const FromProcess& m);
  void on(const Host& host, const AgentPlace& m) { context_.post(AgentMoved{host, m}); }
  void on(const Host& host, const GpuHealth& m);
  void on(const Host& host, const KeptOut& m) { hosts_[host].kept_out = m; }
  // Messages of a worker or server.
  template <class Message>
  void on(WorkerId worker, const Message& m) {
    context_.post(FromWorker<Message>{worker, m});
  }
  void on(WorkerId worker, const Progress& m);
  void on(WorkerId worker, const Figures& m);
  template <class Message>
  void on(ServerId server, const Message& m) {
    context_.post(FromServer<Message>{server, m});
  }
  void on(ServerId server, const ServerReady& m);
  void on(ServerId server, const Traffic& m);
  void on(ServerId server, const KeptOut& m) {
    processes_[{Role::kServer, server.value}].kept_out = m;
  }
  /// Calls on() with the frame's message, if it is one of these.
  template <class... Messages>
  void dispatch(const Host& host, const auto& from, const auto& frame);

  /// Once: workers that share a GPU though each was to have its own, or that have none.
  void warn_of_gpus(const Host& host, const GpuHealth& m);
  void gave_up(const Host& host, ProcessId process, const GivingUp& m);
  void ended(ProcessId process, ExitStatus status, std::string why, bool never_ran,
             bool has_output = false);

  SupervisorContext& context_;
  HostLinks& links_;
  PrepareRuns& prepares_;
  CheckpointKeeper& checkpoints_;
  ProcessOutput& output_;
  JobFigures& figures_;
  std::map<ProcessId, ProcessNotes> processes_;
  std::map<Host, HostNotes> hosts_;
  bool has_warned_of_gpus_ = false;
};

}  // namespace dt::supervisor
