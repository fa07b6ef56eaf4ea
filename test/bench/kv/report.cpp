#include "test/bench/kv/report.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace dt::bench {

namespace {

/// Milliseconds with four significant digits.
std::string ms(double seconds) {
  const double value = seconds * 1e3;
  const int digits = value >= 1000 ? 0 : value >= 100 ? 1 : value >= 10 ? 2 : value >= 1 ? 3 : 4;
  return fmt::format("{:.{}f}", value, digits);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 10'000'000) return fmt::format("{:.1f} KB", static_cast<double>(bytes) / 1e3);
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6);
}

std::string plural(std::uint64_t n, const std::string& word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::vector<std::string> names_of(const std::vector<int>& devices) {
  std::vector<std::string> names;
  for (const int device : devices) names.push_back(fmt::format("cuda:{}", device));
  return names;
}

/// The options that concern the transport of bytes.
std::string how(const KvOptions& options) {
  std::string text = options.is_colocated
                         ? ", colocated"
                         : fmt::format(", transport {}", to_string(options.transport));
  if (options.devices.empty())
    text += fmt::format(", {} memory", to_string(options.memory));
  else
    text += fmt::format(", arrays on {}", fmt::join(names_of(options.devices), " "));
  if (options.is_in_place) text += " in place";
  if (options.is_streamed) text += ", one after the other";
  if (options.server_device) text += fmt::format(", values on cuda:{}", *options.server_device);
  if (options.codec != data::Codec::kNone)
    text += fmt::format(", gradients in {}", kv::name_of(options.codec));
  if (options.is_deterministic) text += ", deterministic";
  if (options.is_apart) text += ", between network namespaces";
  if (options.data_auth == kv::DataAuth::kFrames) text += ", frames authenticated";
  if (options.busy_poll > Duration::zero()) text += ", busy-poll";
  if (options.straggle > 0)
    text += fmt::format(", in turn one {:.0f} ms late", options.straggle * 1e3);
  return text;
}

std::string table_of(const KvOptions& options, const Measurement& one) {
  std::string text = fmt::format(
      "\n{} of {}: {}, {}; {}, {}{}, {}{}{}\n", to_string(options.operation), one.list.name,
      plural(one.list.elements.size(), "tensor"), bytes_text(one.list.bytes()),
      plural(options.workers, "worker"), plural(options.servers, "server"),
      options.loops ? " of " + plural(options.loops, "loop") : "", options.type,
      options.optimizer.empty() ? "" : ", " + options.optimizer, how(options));
  text += fmt::format("  {:<14}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{:>10}{:>10}{:>10}{:>6}\n", "",
                      "ms median", "min", "max", "ops/s", "GB/s", "CPU s/GB", "ms p50", "p90",
                      "p99", "bad");
  for (const auto& series : one.series) {
    const auto [least, most] = std::ranges::minmax(series.operation);
    text += fmt::format(
        "  {:<14}{:>10}{:>10}{:>10}{:>10.1f}{:>9.3f}{:>10}{:>10}{:>10}{:>10}{:>6}\n", series.name,
        ms(median(series.operation)), ms(least), ms(most), 1 / median(series.operation),
        series.gigabytes_per_s(one.list.bytes()),
        series.cpu_per_gb.empty() ? "-" : fmt::format("{:.3f}", median(series.cpu_per_gb)),
        ms(percentile(series.single, 0.5)), ms(percentile(series.single, 0.9)),
        ms(percentile(series.single, 0.99)), series.bad);
  }
  const Series& ours = one.series.front();
  if (options.is_streamed && !ours.kept.empty()) {
    const KeptMemory& first = ours.kept.front();
    const KeptMemory& last = ours.kept.back();
    text += fmt::format(
        "  a worker keeps {:.0f} MiB staged ({:.0f} at first), {:.0f} pinned ({:.0f}), {:.0f} on "
        "devices ({:.0f})\n",
        last.staged_mib, first.staged_mib, last.pinned_mib, first.pinned_mib, last.device_mib,
        first.device_mib);
  }
  for (std::size_t i = 1; i < one.series.size(); ++i) {
    const Series& peer = one.series[i];
    text += fmt::format("  kvstore / {:<14} time {:.2f}", peer.name,
                        median_ratio(ours.operation, peer.operation));
    if (!ours.cpu_per_gb.empty())
      text += fmt::format(", CPU {:.2f}", median_ratio(ours.cpu_per_gb, peer.cpu_per_gb));
    text += fmt::format("   (median of {}; below 1: the kvstore is better)\n",
                        plural(ours.operation.size(), "pair"));
  }
  return text;
}

nlohmann::json spread(const std::vector<double>& values, double scale) {
  const auto [least, most] = std::ranges::minmax(values);
  return {{"median", median(values) * scale}, {"min", least * scale}, {"max", most * scale}};
}

nlohmann::json json_of(const KeptMemory& kept) {
  return {{"staged_mib", kept.staged_mib},
          {"pinned_mib", kept.pinned_mib},
          {"device_mib", kept.device_mib}};
}

nlohmann::json json_of(const TensorList& list, const Series& series) {
  nlohmann::json one = {
      {"name", series.name},
      {"ms", spread(series.operation, 1e3)},
      {"latency_ms",
       {{"p50", percentile(series.single, 0.5) * 1e3},
        {"p90", percentile(series.single, 0.9) * 1e3},
        {"p99", percentile(series.single, 0.99) * 1e3}}},
      {"operations_per_s", 1 / median(series.operation)},
      {"gb_per_s_per_worker", series.gigabytes_per_s(list.bytes())},
      {"cpu_s_per_gb", nullptr},
      {"repetitions", series.operation.size()},
      {"operations", series.operations},
      {"bad", series.bad},
      {"kept_first", nullptr},
      {"kept", nullptr},
      {"read_in_place", series.read_in_place},
  };
  if (!series.kept.empty()) {
    one["kept_first"] = json_of(series.kept.front());
    one["kept"] = json_of(series.kept.back());
  }
  if (!series.cpu_per_gb.empty()) one["cpu_s_per_gb"] = spread(series.cpu_per_gb, 1);
  return one;
}

}  // namespace

std::string as_table(const KvOptions& options, const Environment& env,
                     const std::vector<Measurement>& all) {
  std::string text = fmt::format("dtbench kv: {}, load {:.1f} before, congestion control {}\n",
                                 plural(env.cores, "core"), env.load, env.congestion_control);
  if (!env.is_optimised)
    text += "NOTE: built without optimisation; these figures say nothing (use a release build)\n";
  for (const auto& one : all) text += table_of(options, one);
  return text;
}

std::string as_json(const KvOptions& options, const Environment& env,
                    const std::vector<Measurement>& all) {
  nlohmann::json measurements = nlohmann::json::array();
  std::uint64_t bad = 0;
  for (const auto& one : all) {
    nlohmann::json contenders = nlohmann::json::array();
    nlohmann::json ratios = nlohmann::json::array();
    const Series& ours = one.series.front();
    for (const auto& series : one.series) {
      contenders.push_back(json_of(one.list, series));
      bad += series.bad;
      if (&series == &ours) continue;
      nlohmann::json ratio = {{"peer", series.name},
                              {"pairs", series.operation.size()},
                              {"time", median_ratio(ours.operation, series.operation)},
                              {"cpu", nullptr}};
      if (!ours.cpu_per_gb.empty()) ratio["cpu"] = median_ratio(ours.cpu_per_gb, series.cpu_per_gb);
      ratios.push_back(std::move(ratio));
    }
    measurements.push_back({{"list", one.list.name},
                            {"tensors", one.list.elements.size()},
                            {"bytes", one.list.bytes()},
                            {"contenders", std::move(contenders)},
                            {"ratios", std::move(ratios)}});
  }
  nlohmann::json whole = {
      {"program", "dtbench kv"},
      {"cores", env.cores},
      {"load", env.load},
      {"congestion_control", env.congestion_control},
      {"optimised_build", env.is_optimised},
      {"op", to_string(options.operation)},
      {"workers", options.workers},
      {"servers", options.servers},
      {"loops", options.loops ? nlohmann::json(options.loops) : nlohmann::json()},
      {"busy_poll_us",
       std::chrono::duration_cast<std::chrono::microseconds>(options.busy_poll).count()},
      {"apart", options.is_apart},
      {"colocated", options.is_colocated},
      {"deterministic", options.is_deterministic},
      {"in_place", options.is_in_place},
      {"streamed", options.is_streamed},
      {"straggle_ms", options.straggle * 1e3},
      {"type", options.type},
      {"optimizer", options.optimizer},
      {"chunk_bytes", options.chunk_bytes},
      {"transport", to_string(options.transport)},
      {"data_auth", to_string(options.data_auth)},
      {"codec", kv::name_of(options.codec)},
      {"memory", to_string(options.memory)},
      {"devices", names_of(options.devices)},
      {"server_device", nullptr},
      {"measurements", std::move(measurements)},
      {"bad", bad},
  };
  if (options.server_device)
    whole["server_device"] = fmt::format("cuda:{}", *options.server_device);
  return whole.dump(1) + "\n";
}

}  // namespace dt::bench
