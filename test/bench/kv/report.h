/// The measurements, as a table for people and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "test/bench/kv/measure.h"

namespace dt::bench {

/// The machine and the circumstances: lines of their own.
struct Environment {
  std::string congestion_control;
  unsigned cores = 0;
  double load = 0;           ///< The machine's load over a minute before the measurements.
  bool is_optimised = true;  ///< Built with optimisation.
};

[[nodiscard]] std::string as_table(const KvOptions& options, const Environment& env,
                                   const std::vector<Measurement>& all);
[[nodiscard]] std::string as_json(const KvOptions& options, const Environment& env,
                                  const std::vector<Measurement>& all);

}  // namespace dt::bench
