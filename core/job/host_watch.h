/// When a silent host is lost: no sign of life for --dead-after, neither by its agent's link nor by
/// its workers' data, unless it is this supervisor that is cut off. Hosts with servers have the
/// servers' patience. Pure; core/job/liveness.h keeps the signs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/files/hosts.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

class HostWatch {
 public:
  struct Lost {
    Host host;
    std::string why;  ///< "no sign of life for 3.0 s"
    Time since;       ///< Its last sign of life.
  };

  HostWatch(JobContext& job, HostTable& hosts, const ServerGroup& servers, const Workers& workers)
      : job_(job), hosts_(hosts), servers_(servers), workers_(workers) {}

  /// The hosts that are lost now.
  [[nodiscard]] std::vector<Lost> tick();

 private:
  /// Why the host is lost, if it is: silent for `down`.
  [[nodiscard]] std::optional<std::string> why_lost(const Host& host, Duration down) const;
  /// It has servers, and may be silent for longer.
  [[nodiscard]] bool servers_keep(const Host& host, Duration down) const;
  /// No sign of life of the host and of any worker there.
  [[nodiscard]] bool all_dead(const Host& host) const;
  /// The boundary waits for a worker on this host, and all the workers that it waits for show life
  /// by their data connections alone.
  [[nodiscard]] bool boundary_waits_for_unsupervised(const Host& host) const;

  JobContext& job_;
  HostTable& hosts_;
  const ServerGroup& servers_;
  const Workers& workers_;
};

}  // namespace dt
