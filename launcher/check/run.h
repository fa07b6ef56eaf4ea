/// A whole check in a loop of its own, with the folder on the volume that belongs to it.
#pragma once

#include "core/base/result.h"
#include "core/preflight/findings.h"
#include "io/job/spec.h"
#include "launcher/check/check.h"

namespace dt::launcher {

/// Blocks until it is done. Removes its files also at a signal that ends programs
/// (io/stop_signals.h), and when `owner`, a pipe or socket that nobody writes to any more, comes to
/// its end (-1: none): these end the process. An error: it cannot be done.
[[nodiscard]] Result<preflight::Findings> run_checks(const io::JobSpec& spec, CheckPlan plan,
                                                     int owner = -1);

}  // namespace dt::launcher
