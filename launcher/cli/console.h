/// dtlaunch once the job is planned: keeps a supervisor alive, shows its console, turns signals
/// into requests, and ends with the job's exit code.
#pragma once

#include <optional>

#include "io/job/spec.h"
#include "launcher/supervisor_process.h"

namespace dt::launcher {

struct JobRun {
  int exit_code = 0;  ///< dtlaunch's.
  /// A signal has asked for the end, or said that the allocation ends: nothing may begin after it.
  /// The exit code that says so.
  std::optional<int> ordered;
};

/// Runs the job of a spec that lies in its state folder, until it has ended (or, detached, until
/// its supervisor is ready). Blocks; installs signal handlers. kAdopt: the job that an earlier
/// dtlaunch has left.
[[nodiscard]] JobRun run_job(const io::JobSpec& spec, SupervisorStart how = SupervisorStart::kNew);

}  // namespace dt::launcher
