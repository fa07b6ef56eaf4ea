/// Runs contenders in turn and keeps what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "test/bench/kv/control.h"
#include "test/bench/kv/options.h"

namespace dt::bench {

/// One contender's results. Times in seconds.
struct Series {
  std::string name;
  std::vector<double> operation;    ///< Mean of an operation on the slowest worker, per repetition.
  std::vector<double> cpu_per_gb;   ///< CPU seconds per 10^9 bytes of payload per worker.
  std::vector<double> single;       ///< Every operation of every worker.
  std::uint64_t operations = 0;     ///< Number of timed operations.
  std::uint64_t bad = 0;            ///< Wrong elements.
  std::vector<KeptMemory> kept;     ///< After each repetition; empty: no reports came.
  std::uint64_t read_in_place = 0;  ///< Contributions read in the memory of a worker's device.
  /// Server threads with at least a twentieth of the CPU time of the busiest one.
  std::uint32_t busy_loops = 0;

  /// For operations that exchange so many bytes.
  [[nodiscard]] double gigabytes_per_s(std::uint64_t bytes) const;
};

struct Measurement {
  TensorList list;
  std::vector<Series> series;  ///< The kvstore first, then the peers.
};

/// With every round filled and checked, more operations in a repetition only take longer.
inline constexpr std::uint32_t kMostVerified = 20;

[[nodiscard]] Measurement measure(const KvOptions& options, const TensorList& list);

/// Number of operations of a repetition: `wanted`, limited to 1 to `most`. If workers take turns at
/// being late, a number for which each gets equally many turns.
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
