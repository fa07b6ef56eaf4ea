/// `dtagent --attach`: carries bytes between its stdin/stdout and the agent's socket, and starts
/// the agent if asked to. It holds no state: when it ends, only the supervisor's link is gone; with
/// `stay` an agent that it has started may be killed then, and so it ends after that.
#pragma once

#include <string>

#include "core/base/id.h"
#include "launcher/agent/agent.h"

namespace dt::launcher {

struct BridgeOptions {
  AgentOptions agent;
  bool start = false;       ///< Start the agent if it is not there.
  bool stay = false;        ///< See stay.h.
  bool aside = false;       ///< See stand_aside.h.
  bool lines = false;       ///< stdin and stdout are framed: core/launch/lines.h.
  Term term;                ///< The supervisor's.
  bool takes_over = false;  ///< Lower terms start no agent here any more.
  /// Where the agent was before (AgentPlace::socket); empty: not known.
  std::string socket;
};

/// The program: returns its exit code, 0 when either side closed.
int bridge_main(const BridgeOptions& options);

}  // namespace dt::launcher
