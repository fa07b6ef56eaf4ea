/// sim: runs the job machine through seeded faults. See README.md.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "test/sim/random.h"
#include "test/sim/simulate.h"

namespace {

using dt::sim::Kinds;
using dt::sim::Outcome;
using dt::sim::simulate;

constexpr std::pair<const char*, bool Kinds::*> kKinds[] = {
    {"groups", &Kinds::groups},         {"opaque-servers", &Kinds::opaque_servers},
    {"limits", &Kinds::limits},         {"two-masters", &Kinds::two_masters},
    {"clocks", &Kinds::clocks},         {"full-disk", &Kinds::full_disk},
    {"two-orders", &Kinds::two_orders},
};

struct Arguments {
  std::uint64_t from = 1;
  std::uint64_t seeds = 1000;
  std::optional<std::uint64_t> seed;
  bool trace = false;
  bool twice = false;  ///< Every seed two times: equal hashes.
  Kinds kinds;
  bool cut = false;  ///< Every seed with and without cuts of the journal: equal hashes.
  std::string file;
};

[[noreturn]] void usage() {
  fmt::print(stderr,
             "usage: sim --seed N [--trace]      one run, told line by line\n"
             "       sim --seeds COUNT [--from N | --fresh] [--twice | --cut]\n"
             "       sim --file SEEDS            a seed per line, with its kinds; # comments\n"
             "       ... --with KIND...          which otherwise some seeds choose:\n        ");
  for (const auto& [name, kind] : kKinds) fmt::print(stderr, " {}", name);
  fmt::print(stderr, "\n");
  std::exit(2);
}

/// False: there is no such kind.
bool add_kind(Kinds& kinds, std::string_view name) {
  const auto* kind = std::ranges::find(kKinds, name, &std::pair<const char*, bool Kinds::*>::first);
  if (kind == std::end(kKinds)) return false;
  kinds.*kind->second = true;
  return true;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] {
      if (i + 1 >= argc) usage();
      return std::strtoull(argv[++i], nullptr, 10);
    };
    if (word == "--seed") {
      a.seed = number();
    } else if (word == "--seeds") {
      a.seeds = number();
    } else if (word == "--from") {
      a.from = number();
    } else if (word == "--fresh") {
      a.from = std::random_device{}();
    } else if (word == "--trace") {
      a.trace = true;
    } else if (word == "--twice") {
      a.twice = true;
    } else if (word == "--with" && i + 1 < argc) {
      if (!add_kind(a.kinds, argv[++i])) usage();
    } else if (word == "--cut") {
      a.cut = true;
    } else if (word == "--file" && i + 1 < argc) {
      a.file = argv[++i];
    } else {
      usage();
    }
  }
  return a;
}

/// Runs one seed; prints its failure and how to reproduce it.
bool holds(std::uint64_t seed, const Kinds& kinds, const Arguments& a, Outcome& out) {
  const bool cuts = a.cut || dt::sim::cuts_by_default(seed);
  out = simulate(seed, a.trace, cuts, kinds);
  if (out.failure) {
    fmt::print("seed {} FAILED: {}\n  replay: sim --seed {} --trace", seed, *out.failure, seed);
    for (const auto& [name, kind] : kKinds)
      if (kinds.*kind) fmt::print(" --with {}", name);
    fmt::print("\n");
    return false;
  }
  if (a.twice && simulate(seed, false, cuts, kinds).hash != out.hash) {
    fmt::print("seed {} FAILED: two runs differ\n", seed);
    return false;
  }
  if (a.cut && simulate(seed, false, false, kinds).hash != out.hash) {
    fmt::print("seed {} FAILED: after {} cut(s) of the journal the job is another one\n", seed,
               out.cuts);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const Arguments a = parse(argc, argv);
  Outcome out;
  if (a.seed) {
    if (!holds(*a.seed, a.kinds, a, out)) return 1;
    fmt::print("seed {} holds: exit code {}, {:.1f} s of job, {} commit(s), {} crash(es)\n",
               *a.seed, *out.exit_code, dt::seconds(out.took), out.commits, out.crashes);
    return 0;
  }
  std::vector<std::pair<std::uint64_t, Kinds>> seeds;
  if (!a.file.empty()) {
    std::ifstream in(a.file);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      auto& [seed, kinds] = seeds.emplace_back(0, a.kinds);
      if (!(words >> seed)) {  // a comment
        seeds.pop_back();
        continue;
      }
      for (std::string kind; words >> kind;)
        if (!add_kind(kinds, kind)) usage();
    }
    if (seeds.empty()) {
      fmt::print("{}: no seeds\n", a.file);
      return 1;
    }
  } else {
    for (std::uint64_t i = 0; i < a.seeds; ++i)
      seeds.emplace_back(dt::sim::seed_of(a.from + i), a.kinds);
  }
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t failed = 0;
  std::uint64_t good = 0;
  std::uint64_t crashes = 0;
  std::uint64_t commits = 0;
  std::uint64_t lines = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t rollbacks = 0;
  std::uint64_t cuts = 0;
  double simulated = 0;
  for (const auto& [seed, kinds] : seeds) {
    if (!holds(seed, kinds, a, out) && ++failed == 10) break;
    good += out.exit_code == 0;
    crashes += out.crashes;
    commits += out.commits;
    lines += out.log_lines;
    checkpoints += out.checkpoints;
    rollbacks += out.rollbacks;
    cuts += out.cuts;
    simulated += dt::seconds(out.took);
  }
  const double took = dt::seconds(std::chrono::steady_clock::now() - begin);
  fmt::print(
      "{} seeds from {} in {:.1f} s: {} failed; {} jobs ended with 0, {} commits, {} log lines, {} "
      "supervisor crashes, {} checkpoints, {} rollbacks, {} cuts of the journal, {:.0f} h of job "
      "time\n",
      seeds.size(), a.from, took, failed, good, commits, lines, crashes, checkpoints, rollbacks,
      cuts, simulated / 3600);
  return failed == 0 ? 0 : 1;
}
