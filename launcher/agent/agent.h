/// The agent: one per host and job. It starts, watches and stops the job's processes there, carries
/// their output and messages to whichever supervisor is attached, and lives on without one. See
/// core/protocol/control_messages.h for the rules of its links.
#pragma once

#include "launcher/agent/agent_files.h"
#include "launcher/agent/guard.h"
#include "launcher/agent/process.h"
#include "launcher/agent/programs.h"

namespace dt::launcher {

/// Returns once it is to stop, or was without a supervisor for too long. `incarnation`: random per
/// agent life.
[[nodiscard]] Result<void> run_agent(const AgentOptions& options, const AgentFiles& files,
                                     const ProcessDefaults& defaults, Guard guard,
                                     std::uint64_t incarnation);

}  // namespace dt::launcher
