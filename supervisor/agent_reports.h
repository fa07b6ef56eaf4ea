/// What agents and the processes under them report, as events of the job machine, notes for people
/// and figures for the status.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "core/protocol/gpu_health.h"
#include "supervisor/checkpoint_keeper.h"
#include "supervisor/control/pulse.h"
#include "supervisor/control/status.h"
#include "supervisor/hosts/host_links.h"
#include "supervisor/prepare_runs.h"
#include "supervisor/shell.h"
#include "supervisor/volume/output.h"

namespace dt::supervisor {

/// One thread. Everything given outlives it.
class AgentReports final : public HostLinks::Listener {
 public:
  AgentReports(Shell& shell, HostLinks& links, PrepareRuns& prepares, CheckpointKeeper& checkpoints,
               ProcessOutput& output, Pulse& pulse)
      : shell_(shell),
        links_(links),
        prepares_(prepares),
        checkpoints_(checkpoints),
        output_(output),
        pulse_(pulse) {}

  void admitted(const Host& host, const AgentState& state) override;
  void attached(const Host& host, const AgentState& state) override;
  void frame(const Host& host, const wire::Frame& frame) override;
  void agent_gone(const Host& host) override { prepares_.forget(host); }

  /// The process's end is journalled.
  void forget(ProcessId process) { processes_.erase(process); }

  [[nodiscard]] const std::map<ProcessId, ProcessNotes>& processes() const { return processes_; }
  /// What the agent of each host has reported of itself.
  struct HostNotes {
    KeptOut kept_out;
    GpuHealth gpus;
    std::map<std::string, std::vector<std::string>> gpu_troubles;  ///< Noted, by GPU.
  };
  [[nodiscard]] const std::map<Host, HostNotes>& hosts() const { return hosts_; }

 private:
  // Messages of the agent.
  void on(const Host& host, const ProcessStarted& m);
  void on(const Host& host, const ProcessFailed& m);
  void on(const Host& host, const ProcessExited& m);
  void on(const Host& host, const dt::Output& m);
  void on(const Host& host, const FolderChecked& m) { links_.folder_checked(host, m); }
  void on(const Host& host, const Usage& m);
  void on(const Host& host, const ProcessState& m);
  void on(const Host& host, const FromProcess& m) { from_process(host, m.process, m.type, m.body); }
  void on(const Host& host, const AgentPlace& m) { shell_.post(AgentMoved{host, m}); }
  void on(const Host& host, const GpuHealth& m);
  void on(const Host& host, const KeptOut& m) { hosts_[host].kept_out = m; }
  /// Calls on() if the frame has this type; true if it had.
  template <class Message>
  bool dispatch(const Host& host, const wire::Frame& frame);

  void from_process(const Host& host, ProcessId process, std::uint16_t type,
                    const std::string& body);
  void from_worker(WorkerId worker, std::uint16_t type, const std::string& body);
  void from_server(ProcessId process, std::uint16_t type, const std::string& body);
  void gave_up(const Host& host, ProcessId process, const GivingUp& m);
  void ended(ProcessId process, ExitStatus status, std::string why, bool never_ran);

  Shell& shell_;
  HostLinks& links_;
  PrepareRuns& prepares_;
  CheckpointKeeper& checkpoints_;
  ProcessOutput& output_;
  Pulse& pulse_;
  std::map<ProcessId, ProcessNotes> processes_;
  std::map<Host, HostNotes> hosts_;
};

}  // namespace dt::supervisor
