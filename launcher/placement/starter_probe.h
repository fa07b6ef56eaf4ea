/// Whether the programs that start commands on a job's hosts can be used on this machine. Asked
/// before the job begins: later the same answer would come for each host, again and again until
/// --start-timeout.
#pragma once

#include "core/base/result.h"
#include "core/launch/allocation.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// An error names the program, why it cannot be used, and the remedy. Blocks, for 15 s at most.
[[nodiscard]] Result<void> check_starters(const io::JobSpec& spec, const VariableOf& variable);

}  // namespace dt::launcher
