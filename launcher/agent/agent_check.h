/// The host's side of dtlaunch --check: a program of its own beside any agent, which answers
/// questions (core/preflight/preflight_messages.h) until its stdin ends, and leaves nothing behind.
#pragma once

namespace dt::launcher {

/// The program `dtagent --check`. `lines`: see BridgeOptions.
int check_main(bool lines);

}  // namespace dt::launcher
