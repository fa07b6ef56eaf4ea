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

/// What the job and its faults have in any case; otherwise some seeds choose it.
struct Kinds {
  bool groups = false;          ///< The command opens no kvstore; its workers restart as a group.
  bool opaque_servers = false;  ///< The servers are programs of the user's.
  bool limits = false;          ///< Of the number of workers.
  bool two_masters = false;     ///< The lock cannot be read, and another master takes over.
  bool clocks = false;          ///< The wall clock steps.
  bool full_disk = false;       ///< The journal's, for a while.
  bool two_orders = false;      ///< Workers wait for each other.
};

/// `trace`: prints a line per event to stdout. `cuts`: the journal is cut whenever it is a little
/// longer; that changes nothing else, so the hash is the same.
[[nodiscard]] Outcome simulate(std::uint64_t seed, bool trace, bool cuts, Kinds kinds);
/// One seed of four cuts its journal unless something else is asked for.
[[nodiscard]] inline bool cuts_by_default(std::uint64_t seed) { return seed % 4 == 0; }

}  // namespace dt::sim
