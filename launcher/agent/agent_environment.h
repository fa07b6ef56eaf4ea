/// The environment that an agent passes on to its processes.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dt::launcher {

/// Whether the variable describes the task that srun, mpirun or qrsh started this agent as. A
/// training program that finds it takes itself for the only task of that launcher's, and its world
/// for one of size 1. What describes the whole allocation, SLURM_JOB_ID and SLURM_JOB_NODELIST,
/// does not belong here.
[[nodiscard]] bool is_of_starter(std::string_view name);

/// The present environment without the starter's variables, with `overrides` on top; a later name
/// wins.
[[nodiscard]] std::map<std::string, std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& overrides);

}  // namespace dt::launcher
