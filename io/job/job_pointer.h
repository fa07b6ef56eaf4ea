/// The pointer file of a job folder: its current or last job, and the address of its supervisor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace dt::io {

struct JobPointer {
  struct Ended {
    int exit_code = 0;
    std::string message;
  };
  std::string job;
  std::string master;     ///< Address of the supervisor's machine.
  std::int64_t pid = 0;   ///< Pid of the supervisor.
  std::string socket;     ///< Its control socket on that machine.
  std::string state_dir;  ///< On that machine.
  std::optional<Ended> ended;
};

/// Reads `<job_dir>/.dtlaunch/current.json`; kUnavailable if no job was ever started there.
[[nodiscard]] Result<JobPointer> read_job_pointer(const std::string& job_dir);

}  // namespace dt::io
