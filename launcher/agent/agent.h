/// The agent: one per host and job. It starts, watches and stops the job's processes there, carries
/// their output and messages to whichever supervisor is attached, and lives on without one. See
/// core/protocol/control_messages.h for the rules of its links.
#pragma once

#include <string>

#include "core/base/time.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/guard.h"
#include "launcher/agent/process.h"

namespace dt::launcher {

struct AgentOptions {
  std::string job;
  std::string host;       ///< As written by the user.
  bool is_first = false;  ///< No agent of the job ran there before: nothing is left of one.
  Duration lonely_timeout = std::chrono::seconds(60);  ///< Never attached for so long: exit.
  /// TERM, USR1, USR2 and XCPU say that the host goes away after that (io/notice_signals.h);
  /// 0: TERM is an order to stop, as INT and a second TERM always are. A bridge passes it on to the
  /// agent that it starts only where those signals are a scheduler's.
  Duration notice_grace{};
};

/// Returns once it is to stop, or was without a supervisor for too long. `incarnation`: random per
/// agent life.
[[nodiscard]] Result<void> run_agent(const AgentOptions& options, const AgentFiles& files,
                                     const ProcessDefaults& defaults, Guard guard,
                                     std::uint64_t incarnation);

}  // namespace dt::launcher
