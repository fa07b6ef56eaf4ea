// dtbench: how fast the parts of dtlaunch are on this machine.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/base/version.h"
#include "core/protocol/exit_code.h"
#include "test/bench/kv/device_tensors.h"
#include "test/bench/kv/failure.h"
#include "test/bench/kv/isolation.h"
#include "test/bench/kv/job_run.h"
#include "test/bench/kv/measure.h"
#include "test/bench/kv/options.h"
#include "test/bench/kv/report.h"

namespace {

using namespace dt;
using namespace dt::bench;

constexpr const char* kHelp = R"(usage: dtbench COMMAND [OPTION]...

  dtbench kv         the kvstore: push and pull of a model's tensors, beside
                     peers and raw limits
  dtbench --version
  dtbench --help

`dtbench kv --help` has its options.
)";

Environment environment() {
  Environment env;
  env.cores = std::thread::hardware_concurrency();
  (void)::getloadavg(&env.load, 1);
  env.congestion_control = congestion_control();
#ifndef __OPTIMIZE__
  env.is_optimised = false;
#endif
  return env;
}

int usage(const std::string& why) {
  fmt::print(stderr, "dtbench: {} (see dtbench kv --help)\n", why);
  return kExitUsage;
}

int exit_code(std::uint64_t bad) {
  if (bad == 0) return 0;
  fmt::print(stderr, "dtbench: {} elements of results were wrong\n", bad);
  return kExitFailure;
}

int report(const KvOptions& options, const Environment& env, const std::vector<Measurement>& all) {
  const auto text = options.json ? as_json(options, env, all) : as_table(options, env, all);
  if (std::fputs(text.c_str(), stdout) < 0) return kExitFailure;
  std::uint64_t bad = 0;
  for (const auto& one : all)
    for (const auto& series : one.series) bad += series.bad;
  return exit_code(bad);
}

/// Runs as one worker of a job.
int work(KvOptions options) {
  const JobResult result = run_in_job(options);
  if (!result.is_reporter) return 0;
  options.workers = result.workers;
  options.servers = result.servers;
  options.transport = result.transport;
  options.loops = 0;
  return report(options, environment(), result.measurements);
}

int run_here(KvOptions options) {
  if (const std::string why = why_no_devices(options); !why.empty()) {
    fmt::print(stderr, "dtbench: {}\n", why);
    return kv::cuda::kNoDeviceExit;
  }
  Environment env = environment();
  if (options.is_apart) {
    env.congestion_control = isolate_network();
    options.server_network = must(make_server_network());
  }
  if (!options.peers.empty() && !options.is_apart) env.congestion_control = isolate_network();
  std::vector<Measurement> all;
  for (const auto& list : options.lists) all.push_back(measure(options, list));
  return report(options, env, all);
}

int run_kv(const std::vector<std::string>& words) {
  const bool in_job = is_in_job();
  const auto parsed = parse_kv(words, in_job);
  if (!parsed) return usage(parsed.error().message);
  if (parsed->answer) return std::fputs(parsed->answer->c_str(), stdout) < 0;
  try {
    if (in_job) return work(parsed->options);
    if (!parsed->options.hosts.empty()) exec_dtlaunch(parsed->options);
    return run_here(parsed->options);
  } catch (const std::exception& error) {
    fmt::print(stderr, "dtbench: {}\n", error.what());
    return kExitFailure;
  }
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
