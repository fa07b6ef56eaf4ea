/// `-A`: programs on a host use the ssh-agent of this machine.
#pragma once

#include <memory>
#include <string>

#include "launcher/backend/ssh/session.h"

namespace dt::launcher {

/// Connects each channel that the host opens for it to the agent at `socket`. What is carried ends
/// with its channel, at the latest with the session.
void forward_agent(const std::shared_ptr<SshSession>& session, std::string socket);

}  // namespace dt::launcher
