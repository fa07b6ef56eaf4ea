// dtbench: how fast the parts of dtlaunch are on this machine.

#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "core/version.h"
#include "kvstore/bench/isolation.h"
#include "kvstore/bench/measure.h"
#include "kvstore/bench/options.h"
#include "kvstore/bench/report.h"

namespace {

using namespace dt;
using namespace dt::bench;

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr const char* kHelp = R"(usage: dtbench COMMAND [OPTION]...

  dtbench kv         the kvstore: push and pull of a model's tensors, beside peers and raw limits
  dtbench --version
  dtbench --help

`dtbench kv --help` has its options.
)";

Surroundings look_around(const KvOptions& options) {
  Surroundings around;
  around.cores = std::thread::hardware_concurrency();
  around.congestion_control = options.peers.empty() ? congestion_control() : isolate_network();
#ifndef __OPTIMIZE__
  around.is_optimised = false;
#endif
  return around;
}

int usage(const std::string& why) {
  fmt::print(stderr, "dtbench: {} (see dtbench kv --help)\n", why);
  return kExitUsage;
}

int run_kv(const std::vector<std::string>& words) {
  const auto parsed = parse_kv(words);
  if (!parsed) return usage(parsed.error().message);
  if (parsed->wish == Wish::kHelp) return std::fputs(kv_help().c_str(), stdout) < 0;
  const KvOptions& options = parsed->options;
  const Surroundings around = look_around(options);
  std::vector<Measurement> all;
  std::uint64_t bad = 0;
  for (const auto& list : options.lists) {
    auto measurement = measure(options, list);
    if (!measurement) {
      fmt::print(stderr, "dtbench: {}\n", measurement.error().message);
      return kExitFailure;
    }
    for (const auto& series : measurement->series) bad += series.bad;
    all.push_back(std::move(*measurement));
  }
  const auto text = options.json ? as_json(options, around, all) : as_table(options, around, all);
  if (std::fputs(text.c_str(), stdout) < 0) return kExitFailure;
  if (bad == 0) return 0;
  fmt::print(stderr, "dtbench: {} elements of results were wrong\n", bad);
  return kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return std::fputs(kHelp, stderr), kExitUsage;
  if (words[0] == "--version") return std::fputs(version_text("dtbench").c_str(), stdout) < 0;
  if (words[0] == "--help" || words[0] == "-h") return std::fputs(kHelp, stdout) < 0;
  if (words[0] != "kv") return usage(fmt::format("unknown command {}", words[0]));
  return run_kv({words.begin() + 1, words.end()});
}
