/// `dtagent --attach --start --stay`: the bridge that has started an agent ends after it. A
/// scheduler that kills what a command leaves behind (Slurm, with proctrack/cgroup) then leaves the
/// agent alone, and its node's share is free when the job has ended there.
#pragma once

#include <string>

#include "io/fd.h"

namespace dt::launcher {

/// Carries bytes over `agent` (carry.h) until that ends, and ends this process once neither the
/// agent nor its guard lives. `lock`: held by these two. Signals of a scheduler go to the agent
/// (signals.h), as notices if it takes these.
[[noreturn]] void stay_with_agent(io::Fd agent, const std::string& lock, bool lines,
                                  bool takes_notices);

}  // namespace dt::launcher
