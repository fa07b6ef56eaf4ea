/// `dtagent --attach`: carries bytes between its stdin/stdout and the agent's socket, and starts
/// the agent if asked to. It holds no state: when it ends, only the supervisor's link is gone.
#pragma once

#include <string>

#include "core/base/result.h"
#include "io/fd.h"

namespace dt::launcher {

struct BridgeOptions {
  std::string job;
  std::string host;
  bool start = false;          ///< Start the agent if it is not there.
  bool is_first = false;       ///< No agent of the job ran there before: nothing is left of one.
  std::string lonely_timeout;  ///< Handed to the agent; empty: its default.
  /// Where the agent was before (AgentPlace::socket); empty: not known.
  std::string socket;
};

inline constexpr int kExitNoAgent = 3;

/// Connects to the agent, wherever it was started (agent_files_anywhere). Errors without `start`:
/// kUnavailable: neither an agent nor its guard is there, and what they left behind was killed;
/// kTimeout: one is there and cannot be reached, or what it left behind cannot be killed.
[[nodiscard]] Result<io::Fd> connect_agent(const BridgeOptions& options);

/// The program: returns its exit code, 0 when either side closed.
int bridge_main(const BridgeOptions& options);

}  // namespace dt::launcher
