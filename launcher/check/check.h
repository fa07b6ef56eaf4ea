/// Runs the checks of core/preflight on the hosts of a job, by the ways by which the job reaches
/// them, in a loop of its own. Starts `dtagent --check` there, and leaves nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/preflight/findings.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// Where a server of the job listens.
struct ServerPlace {
  Host host;
  std::string address;
  std::uint16_t port = 0;
};

struct CheckPlan {
  bool is_full = false;            ///< Also how fast the hosts' connections are.
  std::vector<Host> hosts;         ///< Each once.
  std::vector<std::string> files;  ///< That have to be the same on all hosts.

  // A running job holds its ports: each of `hosts` connects to these servers,
  std::vector<ServerPlace> servers;
  // or to any free port of these hosts, and they to one of it. They are asked nothing else.
  std::vector<Host> peers;
  bool is_of_newcomers = false;  ///< The job runs.
};

/// Blocks until it is done. Removes its files also at a signal that ends programs
/// (io/stop_signals.h), and when `owner`, a pipe or socket that nobody writes to any more, comes to
/// its end (-1: none): these end the process. An error: it cannot be done.
[[nodiscard]] Result<preflight::Findings> run_checks(const io::JobSpec& spec, CheckPlan plan,
                                                     int owner = -1);

}  // namespace dt::launcher
