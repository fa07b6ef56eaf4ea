/// Carries the bytes of ssh channels to and from local sockets.
#pragma once

#include <string>

#include "io/asio.h"
#include "io/byte_stream.h"
#include "launcher/backend/ssh/session.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {

/// Returns when either side has ended; then both are closed.
io::awaitable<void> splice(SshStreamPtr channel, io::UnixSocket socket);

/// `-A`: programs on the host use the ssh-agent of this machine. Connects each channel that the
/// host opens for it to the agent at `socket`. What is carried ends with its channel, at the latest
/// with the session.
void forward_agent(const SessionPtr& session, std::string socket);

}  // namespace dt::launcher
