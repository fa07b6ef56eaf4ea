/// Runs a scheduler's programs: squeue, scontrol, sbatch, scancel.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/launch/allocation.h"

namespace dt::launcher {

/// What the program prints if it ends well, else its last line of stderr, or why it could not be
/// run. Blocks, for 15 s at most. `input`: its stdin. Variables that give squeue's output another
/// form are taken away.
[[nodiscard]] Answer ask_scheduler(const std::string& program,
                                   const std::vector<std::string>& arguments,
                                   std::string_view input = {});

}  // namespace dt::launcher
