#include "test/bench/kv/scaling.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "kvstore/compute/compression.h"
#include "kvstore/protocol/layout.h"
#include "test/bench/kv/failure.h"

namespace dt::bench {

double imbalance_of(const KvOptions& options, const TensorList& list) {
  Layout layout(std::vector(options.servers, options.loops), options.chunk_bytes);
  for (const std::uint64_t elements : list.elements) layout.add_key(elements, sizeof(float));
  std::uint64_t most = 0;
  for (std::uint32_t s = 0; s < options.servers; ++s) most = std::max(most, layout.server_bytes(s));
  return static_cast<double>(most) * options.servers / static_cast<double>(list.bytes());
}

ScalingStep measure_step(const KvOptions& options, std::uint32_t workers, std::uint32_t servers) {
  KvOptions here = options;
  here.workers = workers;
  here.servers = servers;
  const TensorList& list = options.lists.front();
  Measurement measured = at(fmt::format("{} workers, {} servers", workers, servers),
                            [&] { return measure(here, list); });
  return {workers, servers, imbalance_of(here, list), list.bytes(),
          std::move(measured.series.front())};
}

std::string scaling_head(const KvOptions& options) {
  return fmt::format(
      "dtbench kv --scaling: {} of {} ({:.1f} MB), {}, {}, transport {}, servers of {} loops, {} "
      "cores\n{:>8}{:>9}{:>11}{:>9}{:>10}{:>10}{:>16}{:>12}{:>5}\n",
      to_string(options.operation), options.lists.front().name,
      static_cast<double>(options.lists.front().bytes()) / 1e6, options.type,
      kv::name_of(options.codec), to_string(options.transport), options.loops,
      std::thread::hardware_concurrency(), "workers", "servers", "ms median", "GB/s", "GB/s all",
      "CPU s/GB", "bytes max/mean", "busy loops", "bad");
}

std::string scaling_line(const ScalingStep& step) {
  const double rate = step.series.gigabytes_per_s(step.bytes);
  const auto& cpu = step.series.cpu_per_gb;
  return fmt::format("{:>8}{:>9}{:>11.2f}{:>9.3f}{:>10.3f}{:>10}{:>16.3f}{:>12}{:>5}\n",
                     step.workers, step.servers, median(step.series.operation) * 1e3, rate,
                     rate * step.workers, cpu.empty() ? "-" : fmt::format("{:.3f}", median(cpu)),
                     step.imbalance, step.series.busy_loops, step.series.bad);
}

std::string scaling_json(const KvOptions& options, const std::vector<ScalingStep>& all) {
  nlohmann::json steps = nlohmann::json::array();
  std::uint64_t bad = 0;
  for (const auto& step : all) {
    bad += step.series.bad;
    steps.push_back({{"workers", step.workers},
                     {"servers", step.servers},
                     {"ms", median(step.series.operation) * 1e3},
                     {"gb_per_s_per_worker", step.series.gigabytes_per_s(step.bytes)},
                     {"cpu_s_per_gb", median(step.series.cpu_per_gb)},
                     {"server_bytes_max_over_mean", step.imbalance},
                     {"busy_loops", step.series.busy_loops},
                     {"bad", step.series.bad}});
  }
  const nlohmann::json whole = {{"program", "dtbench kv --scaling"},
                                {"list", options.lists.front().name},
                                {"transport", to_string(options.transport)},
                                {"loops", options.loops},
                                {"steps", std::move(steps)},
                                {"bad", bad}};
  return whole.dump(1) + "\n";
}

}  // namespace dt::bench
