/// A whole job in one thread and virtual time: hosts with agents, workers, servers, the shared
/// volume, a network that fails, a user who edits host_worker, and a supervisor shell around the
/// real core/ that is killed between any two of its effects. One seed, one run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/id.h"

namespace dt::sim {

struct Outcome {
  std::optional<std::string> failure;  ///< The first thing that did not hold.
  std::uint64_t hash = 0;              ///< Of everything that happened.
  std::optional<std::int32_t> exit_code;
  Duration took{};  ///< Virtual.
  std::uint32_t crashes = 0;
  std::uint32_t commits = 0;
  std::uint32_t log_lines = 0;
};

/// `trace`: prints a line per event to stdout.
[[nodiscard]] Outcome simulate(std::uint64_t seed, bool trace);

}  // namespace dt::sim
