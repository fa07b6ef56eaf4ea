/// Whether a job of this user can be alive, as far as this machine knows.
#pragma once

#include <string>
#include <vector>

#include "io/fd.h"

namespace dt::supervisor {

enum class Standing {
  kRuns,     ///< A dtlaunch or a supervisor of it lives here.
  kLeft,     ///< It was started here, nobody of it lives, and nobody took its folder over.
  kUnknown,  ///< It may live on another machine.
};

struct JobHere {
  std::string name;
  Standing standing = Standing::kUnknown;
  std::string socket;        ///< Where its supervisor listens, if it began on this machine.
  std::vector<io::Fd> held;  ///< kLeft: the locks without which it cannot be resumed.
};

/// Does not wait, except for the volume of the job's folder.
[[nodiscard]] JobHere look_at_job(const std::string& name);

/// Where this machine as the job's master has its state, if it is the master.
[[nodiscard]] std::vector<std::string> state_dirs_of(const std::string& job);

/// The names of all jobs that have files on this machine as a master.
[[nodiscard]] std::vector<std::string> jobs_here();

}  // namespace dt::supervisor
