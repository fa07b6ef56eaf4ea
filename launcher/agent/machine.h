/// What an agent reports about its machine.
#pragma once

#include <string>

#include "core/protocol/control_messages.h"

namespace dt::launcher {

/// An AgentState with the machine's name, its boot, its addresses and the cores that this process
/// may use, by its affinity and its cgroup's quota.
[[nodiscard]] AgentState this_machine();

/// A literal address of the interface of this name, else of one whose name begins so; IPv4 before
/// IPv6. Empty: there is none that is up.
[[nodiscard]] std::string address_of_interface(const std::string& name);

}  // namespace dt::launcher
