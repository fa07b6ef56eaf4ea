#include "launcher/agent/agent_environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace dt::launcher {

bool is_of_starter(std::string_view name) {
  // qrsh's folder for temporary files goes with its task, which may end before the process.
  if ((name == "TMPDIR" || name == "TMP") && std::getenv("QRSH_COMMAND")) return true;
  constexpr std::string_view kNames[] = {
      "PE_HOSTFILE",    "SLURM_GTIDS",           "SLURM_LOCALID", "SLURM_NODEID",
      "SLURM_NPROCS",   "SLURM_NTASKS",          "SLURM_PROCID",  "SLURM_TASKS_PER_NODE",
      "SLURM_TASK_PID", "SLURM_NTASKS_PER_NODE",
  };
  // SLURM_STEPID is the older name of SLURM_STEP_ID.
  constexpr std::string_view kPrefixes[] = {"OMPI_",          "PMIX_",       "PMI_",      "QRSH_",
                                            "SLURM_CPU_BIND", "SLURM_SRUN_", "SLURM_STEP"};
  return std::ranges::count(kNames, name) > 0 ||
         std::ranges::any_of(kPrefixes, [&](std::string_view p) { return name.starts_with(p); });
}

std::map<std::string, std::string> environment_with(
    const std::vector<std::pair<std::string, std::string>>& overrides) {
  std::map<std::string, std::string> all;
  for (const char* const* entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == text.npos || is_of_starter(text.substr(0, equals))) continue;
    all.insert_or_assign(std::string(text.substr(0, equals)), text.substr(equals + 1));
  }
  for (const auto& [name, value] : overrides) all[name] = value;
  return all;
}

}  // namespace dt::launcher
