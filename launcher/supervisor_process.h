/// dtsupervisor as a child of dtlaunch: started in a session of its own, so that the terminal's
/// signals do not reach it. It reports when it is ready.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>

#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "io/awaitable.h"
#include "io/fd.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// Why a supervisor did not get ready, and the exit code dtlaunch should end with.
struct StartFailure {
  int exit_code = 1;
  std::string why;
  std::optional<ExitStatus> killed;  ///< Set when a signal ended it before its report.
};

/// kResume: by a dtlaunch that owns the job, which stops with it; kRevive: by a program that does
/// not stay. kAdopt is kResume of a job that was left, perhaps without a living process: then it
/// ends, to begin again. kTakeOver takes the job folder, too, from a supervisor on a host that is
/// gone.
enum class SupervisorStart { kNew, kResume, kRevive, kAdopt, kTakeOver };

/// Destroying it leaves the process alone.
class SupervisorProcess {
 public:
  /// Runs `dtsupervisor --spec <state_dir>/spec.json --ready-fd N [--resume [--owned] [--adopt |
  /// --take-over]]`, its output appended to <state_dir>/supervisor.log, and waits for its
  /// READY or ERROR, or its end.
  static io::awaitable<tl::expected<std::unique_ptr<SupervisorProcess>, StartFailure>> start(
      io::JobSpec spec, SupervisorStart how);

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Where it listens: the spec's socket, or another one where that could not be made.
  [[nodiscard]] const std::string& socket() const { return socket_; }
  /// It is the job's own program, of the version that the job was started with, not ours.
  [[nodiscard]] bool is_of_job() const { return is_of_job_; }
  /// Waits for its end and reaps it; nothing when it is still there after `limit`.
  io::awaitable<std::optional<ExitStatus>> wait(Duration limit);

 private:
  SupervisorProcess(pid_t pid, io::Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  std::string socket_;
  bool is_of_job_ = false;
  io::Fd pidfd_;
  std::optional<ExitStatus> ended_;
};

/// <state_dir>/spec.json
[[nodiscard]] std::string spec_file(const io::JobSpec& spec);
/// <state_dir>/supervisor.log
[[nodiscard]] std::string supervisor_log(const io::JobSpec& spec);

}  // namespace dt::launcher
