/// Asks the schedulers around this process what they know: squeue, scontrol, SGE's hostfile. Each
/// answer comes within a deadline, or counts as none.
#pragma once

#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/launch/allocation.h"

namespace dt::launcher {

/// The allocation of this kind (kSlurm or kSge), or with none the only one that lives here; nothing
/// outside of one. Blocks for up to half a minute.
[[nodiscard]] Result<std::optional<Allocation>> find_allocation(std::optional<StarterKind> kind,
                                                                const VariableOf& variable);

/// Takes the variables of scheduler's jobs that are over from this process's environment: a signal
/// is no notice of theirs any more. Returns a sentence about them, or nothing.
std::string forget_ended_jobs(const VariableOf& variable);

/// Whether the scheduler lets the job start anything on all of these hosts; the error says what to
/// do.
[[nodiscard]] Result<void> check_starts(const Allocation& allocation, const VariableOf& variable);

/// The nodes as the scheduler knows them; empty where it does not answer or has no such command.
[[nodiscard]] std::vector<NodeFacts> ask_nodes(const Allocation& allocation);

}  // namespace dt::launcher
