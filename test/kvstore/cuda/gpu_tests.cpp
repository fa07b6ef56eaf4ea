/// The checks of kvstore/cuda on a device, with fresh random inputs.
///
///     gpu_tests [--seed N] [--device N] [--rounds N]
///
/// Exit codes: 0 all is right, 1 something is wrong, 2 bad usage, 77 no device.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "kvstore/cuda/launch.h"
#include "test/kvstore/cuda/checks.h"

using namespace dt::kv::cuda;

namespace {

void must(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_tests: %s\n", status.error);
  std::exit(1);
}

/// Memory of the current device; every second operation on one tensor goes through a table too.
class OnDevice {
 public:
  using Memory = std::shared_ptr<void>;

  static Memory allocate(std::size_t bytes) {
    auto memory = std::make_shared<DeviceMemory>();
    must(memory->allocate(bytes));
    return {memory, memory->data()};
  }
  static void put(void* to, const void* from, std::size_t bytes) {
    must(copy(to, from, bytes, nullptr));
    must(wait(nullptr));
  }
  static void get(void* to, const void* from, std::size_t bytes) { put(to, from, bytes); }

  template <class Operation>
  static std::uint64_t run(const Operation& operation,
                           const std::vector<typename Operation::Tensor>& tensors) {
    OwnStream stream;
    must(stream.create());
    DeviceMemory count;
    must(count.allocate(sizeof(std::uint64_t)));
    must(fill(count.data(), 0, count.size(), stream.get()));
    auto* nonfinite = static_cast<std::uint64_t*>(count.data());
    static bool as_table = false;
    as_table = !as_table;
    Table<Operation> table;
    if (tensors.size() != 1 || as_table) {
      must(table.make(tensors, stream.get()));
      must(launch(operation, table, nonfinite, stream.get()));
    } else {
      must(launch(operation, tensors.front(), nonfinite, stream.get()));
    }
    must(wait(stream.get()));
    std::uint64_t found = 0;
    get(&found, nonfinite, sizeof found);
    return found;
  }
};

/// A tensor of many tiles, the last one not full.
void check_large(Findings& findings, Random& random) {
  constexpr std::size_t kElements = (std::size_t{1} << 26) + 4099;
  const auto some = dt::kv::numbers<float>(1 << 20, static_cast<std::uint32_t>(random()));
  std::vector<float> a(kElements);
  std::vector<float> b(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    a[i] = some[i % some.size()];
    b[i] = some[(i / 3) % some.size()];
  }
  GuardedArray<float, OnDevice> first(a, 0);
  GuardedArray<float, OnDevice> second(b, 0);
  GuardedArray<float, OnDevice> out(kElements, 0);
  Sum<Float32, Float32, 2> operation;
  operation.sum.count = 2;
  OnDevice::run(operation, {{{first.data(), second.data()}, out.data(), kElements}});
  for (std::size_t i = 0; i < kElements; ++i) a[i] = a[i] + b[i];
  findings.same(dt::kv::difference(out.values(), a), "a sum of 2^26 elements");
  findings.check(out.is_whole(), "written outside");
}

struct Options {
  std::uint64_t seed = std::random_device{}();
  int device = 0;
  int rounds = 1;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    if (i + 1 == argc) return false;
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(argv[i + 1], &end, 10);
    if (*end != '\0' || end == argv[i + 1]) return false;
    if (name == "--seed")
      options.seed = value;
    else if (name == "--device")
      options.device = static_cast<int>(value);
    else if (name == "--rounds")
      options.rounds = static_cast<int>(value);
    else
      return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: gpu_tests [--seed N] [--device N] [--rounds N]\n");
    return 2;
  }
  if (const std::string why = why_no_device(options.device); !why.empty()) {
    std::fprintf(stderr, "gpu_tests: SKIPPED: %s\n", why.c_str());
    return kNoDeviceExit;
  }
  must(use_device(options.device));
  std::printf("gpu_tests: %s, --seed %llu\n", describe_device(options.device).c_str(),
              static_cast<unsigned long long>(options.seed));
  auto checks = all_checks<OnDevice>();
  checks.push_back({"a large tensor", check_large});
  int failed = 0;
  for (int round = 0; round < options.rounds; ++round)
    for (const auto& check : checks) {
      Random random(options.seed + static_cast<std::uint64_t>(round));
      Findings findings;
      check.run(findings, random);
      const bool is_right = findings.wrong.empty();
      std::printf("%-6s %s (%llu)\n", is_right ? "ok" : "FAILED", check.name,
                  static_cast<unsigned long long>(findings.made));
      for (const auto& sentence : findings.wrong) std::printf("       %s\n", sentence.c_str());
      failed += is_right ? 0 : 1;
    }
  std::printf("gpu_tests: %d failed\n", failed);
  return failed == 0 ? 0 : 1;
}
