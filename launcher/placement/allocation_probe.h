/// Asks the schedulers around this process what they know: squeue, scontrol, SGE's hostfile; and
/// whether the job can be started on its hosts. Each answer comes within a deadline, or counts as
/// none.
#pragma once

#include <string>

#include "core/base/result.h"
#include "core/launch/allocation.h"
#include "launcher/placement/placement.h"

namespace dt::launcher {

/// The real ones of this process.
[[nodiscard]] Surroundings surroundings(VariableOf variable);

/// Takes the variables of scheduler's jobs that are over from this process's environment: a signal
/// is no notice of theirs any more. Returns a sentence about them, or nothing.
std::string forget_ended_jobs(const VariableOf& variable);

/// Whether the scheduler lets the job start anything on all of these hosts; the error says what to
/// do.
[[nodiscard]] Result<void> check_starts(const Allocation& allocation, const VariableOf& variable);

/// Whether the programs that start commands on the job's hosts can be used on this machine. Asked
/// before the job begins: later the same answer would come for each host, again and again until
/// --start-timeout. An error names the program, why it cannot be used, and the remedy. Blocks, for
/// 15 s at most.
[[nodiscard]] Result<void> check_starters(const io::JobSpec& spec, const VariableOf& variable);

}  // namespace dt::launcher
