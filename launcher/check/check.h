/// Runs the checks of core/preflight on the hosts of a job, by the ways by which the job reaches
/// them. Starts `dtagent --check` there, and leaves nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/preflight/findings.h"
#include "io/asio.h"
#include "io/job/spec.h"
#include "launcher/backend/backend.h"
#include "launcher/check/volume_probe.h"

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

/// `spec` and `backend` live until it is done. `probe`: nullptr where hosts share no folder.
[[nodiscard]] io::awaitable<preflight::Findings> check_hosts(Backend& backend,
                                                             const io::JobSpec& spec,
                                                             CheckPlan plan,
                                                             const VolumeProbe* probe);

}  // namespace dt::launcher
