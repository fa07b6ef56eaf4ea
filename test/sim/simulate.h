/// One seed, one run of a whole simulated job (test/sim/cluster.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/time.h"

namespace dt::sim {

struct Outcome {
  std::optional<std::string> failure;  ///< The first thing that did not hold.
  std::uint64_t hash = 0;              ///< Hash of the whole trace.
  std::optional<std::int32_t> exit_code;
  Duration took{};  ///< Virtual.
  std::uint32_t crashes = 0;
  std::uint32_t commits = 0;
  std::uint32_t log_lines = 0;
  std::uint32_t rollbacks = 0;
  std::uint32_t checkpoints = 0;
  std::uint32_t cuts = 0;
};

/// `trace`: prints a line per event to stdout. `cuts`: the journal is cut whenever it is a little
/// longer; that changes nothing else, so the hash is the same. `restarts`: the command opens no
/// kvstore, and its workers are restarted as a group; otherwise some seeds choose that.
[[nodiscard]] Outcome simulate(std::uint64_t seed, bool trace, bool cuts, bool restarts);
/// One seed of four cuts its journal unless something else is asked for.
[[nodiscard]] inline bool cuts_by_default(std::uint64_t seed) { return seed % 4 == 0; }

}  // namespace dt::sim
