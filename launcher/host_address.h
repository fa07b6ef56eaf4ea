/// The address at which other hosts find a host's processes, and to which these bind.
#pragma once

#include <string>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// `dialed`: where the backend reached the host; empty: by way of another machine, so that no name
/// need mean anything here. `state`: what the agent there says.
[[nodiscard]] std::string host_address(const io::JobSpec& spec, const Host& host,
                                       const std::string& dialed, const AgentState& state);

}  // namespace dt::launcher
