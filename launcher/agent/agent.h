/// The agent: one per host and job. It starts, watches and stops the job's processes there, carries
/// their output and messages to whichever supervisor is attached, and lives on without one. See
/// core/protocol/control_messages.h for the rules of its links.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "core/base/time.h"

namespace dt::launcher {

struct AgentOptions {
  std::string job;
  std::string host;                                    ///< As written by the user.
  bool is_first = false;                               ///< See AttachOptions.
  Duration lonely_timeout = std::chrono::seconds(60);  ///< Never attached for so long: exit.
  std::size_t spool_bytes = std::size_t{8} << 20;      ///< Per process.
};

/// The program `dtagent --daemon`: returns its exit code. Started by `--attach --start` with the
/// lock on kDaemonLockFd, stderr on the log file, in a session of its own.
int agent_main(const AgentOptions& options);

}  // namespace dt::launcher
