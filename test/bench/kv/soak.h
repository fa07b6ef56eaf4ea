/// A long run that looks for growth: memory, descriptors and mappings of every worker and server,
/// sampled while no operation is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "test/bench/kv/options.h"

namespace dt::bench {

/// The resources of a process.
struct Usage {
  std::uint64_t resident = 0;  ///< Bytes of memory, shared memory included.
  std::uint32_t descriptors = 0;
  std::uint32_t mappings = 0;
  std::uint32_t threads = 0;
};

struct SoakSample {
  std::uint64_t rounds = 0;      ///< Rounds of chunks so far.
  double seconds = 0;            ///< Since the first round.
  std::vector<Usage> processes;  ///< As in Soak::names.
};

struct Soak {
  std::vector<std::string> names;   ///< "worker 0", ..., "server 0", ...
  std::vector<SoakSample> samples;  ///< At even distances; the first one after the warm-up.
  std::uint64_t bad = 0;            ///< Wrong elements: a round in each part is checked.
};

/// Calls `report` after every sample, with all samples so far.
[[nodiscard]] Soak soak(const KvOptions& options, const std::function<void(const Soak&)>& report);

/// The resources that grew too much from the end of the first tenth to the end of the run.
[[nodiscard]] std::vector<std::string> grown(const KvOptions& options, const Soak& soak);

[[nodiscard]] std::string soak_head(const KvOptions& options, const Soak& soak);
[[nodiscard]] std::string soak_line(const SoakSample& sample);
[[nodiscard]] std::string soak_json(const KvOptions& options, const Soak& soak);

}  // namespace dt::bench
