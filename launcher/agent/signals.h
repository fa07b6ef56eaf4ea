/// What a scheduler sends to the bridge is meant for the agent, which runs in a session of its own
/// and may not get it.
#pragma once

#include <csignal>

#include "io/fd.h"

namespace dt::launcher {

/// Those that a scheduler may send and a process may take: kNoticeSignals, and INT.
[[nodiscard]] sigset_t scheduler_signals();
/// Blocks the signals: from now on they are read from this, a signalfd that does not block.
[[nodiscard]] io::Fd take_signals(const sigset_t& signals);

/// The process at the other end of a unix socket that was connected to, as a pidfd.
[[nodiscard]] io::Fd peer_of(const io::Fd& socket);

/// From now on signals of a scheduler go to the process at the other end of `agent`, a unix socket.
/// As notices they go as they are; else TERM and INT go as TERM, and warnings (USR1, USR2, XCPU)
/// are ignored. Call it before there are other threads.
void hand_signals_on(const io::Fd& agent, bool as_notices);

/// `dtagent --attach --aside`: where a scheduler takes a command that a signal ended for the
/// failure of a whole job. SGE is one: it kills the process group of a qrsh whose client is gone,
/// and then the job.
///
/// Takes this process out of the process group that it leads, into its parent's. When the group is
/// killed, this process ends with 0; other signals to the group that a scheduler sends come here.
/// Does nothing in a process that leads a session. Call it before there are other threads.
void stand_aside();

}  // namespace dt::launcher
