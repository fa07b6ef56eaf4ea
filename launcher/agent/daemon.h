/// The program `dtagent --daemon`.
#pragma once

#include "launcher/agent/agent.h"

namespace dt::launcher {

/// Returns its exit code. Started by `--attach --start` with the lock on kDaemonLockFd, stderr on
/// the log file, in a session of its own.
int agent_main(const AgentOptions& options);

}  // namespace dt::launcher
