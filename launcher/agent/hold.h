/// `dtagent --hold`: the process of a holder (core/launch/holders.h), a scheduler's job that keeps
/// a host for one dtlaunch job. It lives as long as the agent there, so that the node is free when
/// the job has ended on it.
#pragma once

#include "launcher/agent/agent.h"

namespace dt::launcher {

/// The program: returns its exit code. Waits for the agent, at most `lonely_timeout`, and then for
/// its end. The scheduler's signals go to the agent, as notices that its host goes away; without an
/// agent TERM and INT end this process.
int hold_main(const AgentOptions& options);

}  // namespace dt::launcher
