/// Carries the bytes of an ssh channel to and from a local socket.
#pragma once

#include <memory>

#include "io/asio.h"
#include "io/byte_stream.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {

/// Returns when either side has ended; then both are closed.
io::awaitable<void> splice(std::unique_ptr<SshStream> channel, io::UnixSocket socket);

}  // namespace dt::launcher
