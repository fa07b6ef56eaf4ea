/// The programs of a running job, kept beside its journal: those that an upgrade puts in their
/// place may speak another version of the protocol than the agents that live.
#pragma once

#include <string>
#include <vector>

#include "io/job/spec.h"

namespace dt::launcher {

/// Keeps dtsupervisor and `files`, given by paths at or below the folder above this program's, in
/// the job's state folder. By a hard link where that is possible. Without room for them the job
/// runs as well: then an upgrade is not to happen while it does. Its supervisor removes them at its
/// end.
void keep_programs(const io::JobSpec& spec, std::vector<std::string> files);

struct SupervisorProgram {
  std::string path;
  bool is_of_job = false;  ///< Not the one beside this program, which has another protocol.
};
/// What a user is told then.
inline constexpr const char* kOwnPrograms =
    "The job was started by another version of dtlaunch: its own programs go on with it";
/// The supervisor that can go on with the job.
[[nodiscard]] SupervisorProgram supervisor_program(const io::JobSpec& spec);

}  // namespace dt::launcher
