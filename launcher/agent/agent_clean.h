/// `dtagent --clean`: ends what jobs of this user left on this machine, and removes their files.
///
/// A job may be alive while its agent or guard lives: its supervisor, on another machine, may come
/// back to it. Such a one is left alone, unless it is in `left` and has no connection. An agent
/// that nobody comes back to ends by itself, after its orphan timeout.
///
/// Processes get TERM (and CONT, which a stopped one needs to obey), after 5 s KILL. Then go the
/// folders of sockets and locks, segments of shared memory by names of NCCL, PyTorch and Python
/// that those processes had, and bundles that nobody has used for two days. What was done is
/// printed, a line each; without a line nothing was there.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "io/flags.h"

namespace dt::launcher {

struct CleanOptions {
  io::Words jobs;        ///< Empty: all of this user.
  io::Words spare;       ///< Not these.
  io::Words left;        ///< Whoever asks has seen that no supervisor of these can come back.
  bool dry_run = false;  ///< Only print what would be done.
  bool force = false;    ///< Also jobs that may be alive.
  bool lines = false;    ///< stdout is framed: core/launch/lines.h.
};

/// The program: returns its exit code, 1 if something could not be ended.
int clean_main(const CleanOptions& options);

}  // namespace dt::launcher
