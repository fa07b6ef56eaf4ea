/// One job of a swarm from its start to its end, and what it costs the supervisor: the figures of
/// swarm_bench.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/time.h"

namespace dt::swarm {

struct TrialOptions {
  std::uint32_t hosts = 200;
  std::uint32_t servers = 0;  ///< 0: as dtlaunch chooses, one a host up to 64.
  std::uint32_t join = 0;     ///< 0: a tenth of the hosts.
  std::uint32_t lose = 0;     ///< 0: a twentieth of the hosts.
  Duration epoch = std::chrono::seconds(5);
  std::uint32_t epochs = 4;  ///< Of each kind that is measured.
  Duration spread = std::chrono::seconds(1);
  std::string folder;  ///< Empty: a temporary one, which is removed.
};

/// Prints as it goes; the exit code.
int run_trial(TrialOptions options);

}  // namespace dt::swarm
