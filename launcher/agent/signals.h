/// What a scheduler sends to the bridge is meant for the agent, which runs in a session of its own
/// and may not get it.
#pragma once

#include <csignal>

#include "io/fd.h"

namespace dt::launcher {

/// Those that a scheduler may send and a process may take: kNoticeSignals, and INT.
[[nodiscard]] sigset_t scheduler_signals();

/// The process at the other end of a unix socket that was connected to, as a pidfd.
[[nodiscard]] io::Fd peer_of(const io::Fd& socket);

/// From now on signals of a scheduler go to the process at the other end of `agent`, a unix socket.
/// As notices they go as they are; else TERM and INT go as TERM, and warnings (USR1, USR2, XCPU)
/// are ignored. Call it before there are other threads.
void hand_signals_on(const io::Fd& agent, bool as_notices);

}  // namespace dt::launcher
