/// The same list with increasing numbers of workers and servers: the CPU cost of a gigabyte, and
/// the balance of the servers' load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "test/bench/kv/measure.h"
#include "test/bench/kv/options.h"

namespace dt::bench {

inline constexpr std::uint32_t kScalingWorkers[] = {1, 2, 4, 8, 16};
inline constexpr std::uint32_t kScalingServers[] = {1, 2, 4, 8};
/// A model's mixture, 16 MB of it: the whole table takes a minute or two.
inline constexpr const char* kScalingList = "8M+4M+2x1M+24x64K+100x4K";

struct ScalingStep {
  std::uint32_t workers = 0;
  std::uint32_t servers = 0;
  double imbalance = 1;  ///< Bytes of the most loaded server / mean over servers.
  std::uint64_t bytes = 0;
  Series series;
};

[[nodiscard]] ScalingStep measure_step(const KvOptions& options, std::uint32_t workers,
                                       std::uint32_t servers);
/// Bytes of the most loaded server / mean over servers, as the workers place the list's chunks.
[[nodiscard]] double imbalance_of(const KvOptions& options, const TensorList& list);

[[nodiscard]] std::string scaling_head(const KvOptions& options);
[[nodiscard]] std::string scaling_line(const ScalingStep& step);
[[nodiscard]] std::string scaling_json(const KvOptions& options,
                                       const std::vector<ScalingStep>& all);

}  // namespace dt::bench
