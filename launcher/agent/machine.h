/// What an agent reports about its machine.
#pragma once

#include "core/protocol/control_messages.h"

namespace dt::launcher {

/// An AgentState with the machine's name, its boot, its addresses and the cores that this process
/// may use.
[[nodiscard]] AgentState this_machine();

}  // namespace dt::launcher
