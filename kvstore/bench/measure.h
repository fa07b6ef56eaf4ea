/// Runs contenders in turn and keeps what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "kvstore/bench/options.h"

namespace dt::bench {

/// What one contender did. Times in seconds.
struct Series {
  std::string name;
  std::vector<double> operation;   ///< Of an operation, slowest worker: one per repetition.
  std::vector<double> cpu_per_gb;  ///< CPU seconds per 10^9 bytes of payload per worker.
  std::vector<double> single;      ///< Every operation of every worker.
  std::uint64_t operations = 0;    ///< Timed ones.
  std::uint64_t bad = 0;           ///< Wrong elements.
  /// Threads of the servers that did at least a twentieth of what the busiest of them did.
  std::uint32_t busy_loops = 0;
};

struct Measurement {
  TensorList list;
  std::vector<Series> series;  ///< The kvstore first, then the peers.
};

/// With every round filled and checked, more operations in a repetition only take longer.
inline constexpr std::uint32_t kMostVerified = 20;

[[nodiscard]] Result<Measurement> measure(const KvOptions& options, const TensorList& list);

/// How many of `wanted` operations a repetition has, 1 to `most`. Where workers take turns at being
/// late each gets as many turns.
[[nodiscard]] std::uint32_t operations_for(const KvOptions& options, double wanted,
                                           std::uint32_t most);

/// The middle one, or the mean of the two.
[[nodiscard]] double median(std::vector<double> values);
/// The value that a share `part` (0..1) of the values does not exceed.
[[nodiscard]] double percentile(std::vector<double> values, double part);
/// The median of ours[i] / theirs[i].
[[nodiscard]] double median_ratio(const std::vector<double>& ours,
                                  const std::vector<double>& theirs);

}  // namespace dt::bench
