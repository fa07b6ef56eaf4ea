/// The address at which other hosts find a host's processes, and to which these bind.
#pragma once

#include <string>

#include "core/files/hosts.h"
#include "core/launch/ways.h"
#include "core/protocol/control_messages.h"

namespace dt::launcher {

/// `dialed`: where the backend reached the host; empty: by way of another machine, so that no name
/// need mean anything here. `state`: what the agent there says.
[[nodiscard]] std::string host_address(const Host& host, const std::string& dialed,
                                       const AgentState& state);

/// The same of a node of an allocation, which its scheduler reaches by `node.address`. What its
/// agent says of ssh is of the shell that made the allocation.
[[nodiscard]] std::string node_address(const AllocatedNode& node, const AgentState& state);

}  // namespace dt::launcher
