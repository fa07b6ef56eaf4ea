/// dtlaunch once the job is planned: keeps a supervisor alive, shows its console, turns signals
/// into requests, and ends with the job's exit code.
#pragma once

#include "io/job/spec.h"
#include "launcher/cli/supervisor_process.h"

namespace dt::launcher {

/// Runs the job of a spec that lies in its state folder, until it has ended (or, detached, until
/// its supervisor is ready). Returns dtlaunch's exit code. Blocks; installs signal handlers.
/// kAdopt: the job that an earlier dtlaunch has left.
[[nodiscard]] int run_job(const io::JobSpec& spec, SupervisorStart how = SupervisorStart::kNew);

}  // namespace dt::launcher
