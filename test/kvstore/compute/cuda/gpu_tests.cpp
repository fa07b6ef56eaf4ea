/// The checks of kvstore/compute/cuda on a device, with fresh random inputs.
///
///     gpu_tests [--seed N] [--device N] [--rounds N]
///
/// Exit codes: 0 all is right, 1 something is wrong, 2 bad usage, 77 no device.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string_view>

#include "kvstore/compute/cuda/launch.h"
#include "kvstore/compute/cuda/local_group.h"
#include "test/kvstore/compute/cuda/checks.h"

using namespace dt::kv::cuda;

namespace {

void must(Status status) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_tests: %s\n", status.error);
  std::exit(1);
}

/// Memory of the current device.
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
    must(dt::kv::cuda::wait(nullptr));
  }
  static void get(void* to, const void* from, std::size_t bytes) { put(to, from, bytes); }

  template <class Operation>
  static std::uint64_t run(const Operation& operation,
                           const std::vector<typename Operation::Tensor>& tensors) {
    UniqueStream stream;
    must(stream.create());
    DeviceMemory count;
    must(count.allocate(sizeof(std::uint64_t)));
    must(fill(count.data(), 0, count.size(), stream.get()));
    auto* nonfinite = static_cast<std::uint64_t*>(count.data());
    for (const auto& tensor : tensors) must(launch(operation, tensor, nonfinite, stream.get()));
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
  Sum<Float32, 2> operation;
  operation.sum.count = 2;
  OnDevice::run(operation, {{{first.data(), second.data()}, out.data(), kElements}});
  for (std::size_t i = 0; i < kElements; ++i) a[i] = a[i] + b[i];
  findings.same(dt::kv::difference(out.values(), a), "a sum of 2^26 elements");
  findings.check(out.is_whole(), "written outside");
}

/// Work that is put on `stream` from now on comes after what is on `earlier` now.
void put_after(Stream stream, Stream earlier) {
  Event event;
  must(event.create());
  must(event.record(earlier));
  must(event.make_wait(stream));
}

/// Host, pinned, device, device and back: each copy runs after the earlier work of the streams of
/// its two ends, and work that waits for the copy runs after it.
void check_transfers(Findings& findings, Random& random) {
  constexpr std::size_t kElements = (std::size_t{1} << 24) + 5;
  constexpr std::size_t kSize = kElements * sizeof(float);
  auto values = dt::kv::numbers<float>(kElements, static_cast<std::uint32_t>(random()), false);
  PinnedMemory pinned;
  DeviceMemory first, second;
  must(pinned.allocate(kSize));
  must(first.allocate(kSize));
  must(second.allocate(kSize));
  UniqueStream compute, up, down;
  must(compute.create());
  must(up.create());
  must(down.create());
  must(copy(pinned.data(), values.data(), kSize, up.get()));
  must(copy(first.data(), pinned.data(), kSize, up.get()));
  put_after(compute.get(), up.get());
  Add<Float32> doubled;
  auto* array = static_cast<float*>(first.data());
  constexpr int kTimes = 8;
  for (int i = 0; i < kTimes; ++i)
    must(launch(doubled, {array, array, kElements}, nullptr, compute.get()));
  put_after(down.get(), compute.get());
  must(copy(second.data(), first.data(), kSize, down.get()));
  // The second copy of the result must run after the first.
  put_after(up.get(), down.get());
  must(copy(pinned.data(), second.data(), kSize, up.get()));
  must(wait(up.get()));
  for (auto& x : values) x *= 1 << kTimes;
  const auto* got = static_cast<const float*>(pinned.data());
  findings.same(dt::kv::difference(std::vector<float>(got, got + kElements), values),
                "copies in the order of streams");
}

/// The number of devices.
int count_devices() {
  int count = 0;
  while (why_no_device(count).empty()) ++count;
  return count;
}

/// All GPUs of this machine sum and gather arrays of small integers, whose sums are exact in any
/// order. "" or the reason why that cannot be tried.
std::string check_local_group(Findings& findings, Random& random) {
  static NcclFunctions nccl;
  if (std::string why = open_nccl(nccl); !why.empty()) return why;
  std::vector<int> devices(static_cast<std::size_t>(count_devices()));
  for (std::size_t i = 0; i < devices.size(); ++i) devices[i] = static_cast<int>(i);
  LocalGroup::Options options;
  options.functions = &nccl;
  LocalGroup group(options);
  if (const std::string why = group.use(devices); !why.empty()) {
    findings.check(false, why);
    return {};
  }
  for (const std::size_t elements :
       {std::size_t{1}, std::size_t{1003}, (std::size_t{1} << 24) + 7}) {
    std::vector<float> sum(elements);
    std::vector<DeviceMemory> memory(devices.size());
    std::vector<std::unique_ptr<UniqueStream>> streams;
    std::vector<LocalGroup::Array> arrays;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      std::vector<float> values(elements);
      for (std::size_t e = 0; e < elements; ++e) {
        values[e] = static_cast<float>(random() % 1000);
        sum[e] += values[e];
      }
      must(use_device(devices[i]));
      streams.push_back(std::make_unique<UniqueStream>());
      must(streams.back()->create());
      must(memory[i].allocate(elements * sizeof(float)));
      must(copy(memory[i].data(), values.data(), elements * sizeof(float), streams[i]->get()));
      must(wait(streams[i]->get()));
      arrays.push_back({memory[i].data(), streams[i]->get()});
    }
    std::string why = group.reduce_scatter(arrays, elements, NcclType::kFloat32);
    if (why.empty()) why = group.all_gather(arrays, elements, NcclType::kFloat32);
    if (why.empty()) why = group.wait();
    findings.check(why.empty(), why);
    for (std::size_t i = 0; why.empty() && i < devices.size(); ++i) {
      std::vector<float> got(elements);
      must(copy(got.data(), memory[i].data(), elements * sizeof(float), streams[i]->get()));
      must(wait(streams[i]->get()));
      findings.same(dt::kv::difference(got, sum), "the sum over all GPUs");
    }
  }
  if (devices.size() > 1) return {};
  // A group of one GPU has no communicator: here one begins, sums and ends.
  NcclComms::Options alone;
  alone.functions = &nccl;
  alone.devices = devices;
  NcclComms comms(alone);
  std::string why = comms.begin();
  DeviceMemory memory;
  must(memory.allocate(1 << 20));
  UniqueStream stream;
  must(stream.create());
  must(fill(memory.data(), 0, memory.size(), stream.get()));
  if (why.empty())
    why = comms.group("sum one array", [&](const NcclFunctions& f, Comm comm, int) {
      return f.ReduceScatter(memory.data(), memory.data(), memory.size() / sizeof(float),
                             static_cast<int>(NcclType::kFloat32), kNcclSum, comm, stream.get());
    });
  std::vector<std::unique_ptr<Event>> events;
  events.push_back(std::make_unique<Event>());
  must(events[0]->create());
  must(events[0]->record(stream.get()));
  if (why.empty()) why = comms.wait_for(events, "sum one array");
  findings.check(why.empty(), why);
  return "this machine has one GPU: a communicator of one was tried";
}

/// Another process with memory on the same device, begun before this one uses CUDA.
class Neighbour {
 public:
  /// Requests memory with numbers<float>(elements, seed).
  struct Order {
    int device = 0;
    std::uint32_t seed = 0;
    std::uint64_t elements = 0;
  };
  struct Named {
    MemoryHandle handle;
    char why[200] = {};  ///< Empty: it is to be had.
  };

  Neighbour() {
    int ask[2];
    int answer[2];
    if (::pipe2(ask, O_CLOEXEC) != 0 || ::pipe2(answer, O_CLOEXEC) != 0) std::exit(1);
    child_ = ::fork();
    const bool is_child = child_ == 0;
    ::close(ask[is_child ? 1 : 0]);
    ::close(answer[is_child ? 0 : 1]);
    in_ = is_child ? ask[0] : answer[0];
    out_ = is_child ? answer[1] : ask[1];
    if (is_child) serve();
  }
  ~Neighbour() { kill(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  Named order(const Order& order) {
    Named named;
    if (!say(order) || !hear(named)) std::snprintf(named.why, sizeof named.why, "it has ended");
    return named;
  }
  /// Whether it finds the sum of its numbers and those of the next seed.
  bool has_sum() {
    char is_right = 0;
    return say('?') && hear(is_right) && is_right == 1;
  }
  /// With nothing given back before.
  void kill() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

  static std::vector<float> numbers(const Order& order, std::uint32_t more) {
    return dt::kv::numbers<float>(order.elements, order.seed + more, false);
  }

 private:
  template <class T>
  bool say(const T& what) {
    return ::write(out_, &what, sizeof what) == static_cast<ssize_t>(sizeof what);
  }
  template <class T>
  bool hear(T& what) {
    return ::read(in_, &what, sizeof what) == static_cast<ssize_t>(sizeof what);
  }
  [[noreturn]] void serve() {
    Order order;
    if (!hear(order)) ::_exit(0);
    auto values = numbers(order, 0);
    const std::size_t bytes = values.size() * sizeof(float);
    must(use_device(order.device));
    DeviceMemory memory;
    must(memory.allocate(bytes));
    OnDevice::put(memory.data(), values.data(), bytes);
    Named named;
    const Status status = export_memory(memory, named.handle);
    if (!status.ok()) std::snprintf(named.why, sizeof named.why, "%s", status.error);
    say(named);
    char asked = 0;
    if (!hear(asked)) ::_exit(0);
    const auto more = numbers(order, 1);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] += more[i];
    std::vector<float> got(values.size());
    OnDevice::get(got.data(), memory.data(), bytes);
    say(dt::kv::difference(got, values).empty() ? '\1' : '\0');
    hear(asked);
    ::_exit(0);
  }

  pid_t child_ = 0;
  int in_ = -1;
  int out_ = -1;
};

/// Another process's memory is summed and written in place, and stays readable here after the other
/// one has been killed. "" or the reason why that cannot be tried.
std::string check_neighbour(Findings& findings, Random& random, Neighbour& neighbour) {
  Neighbour::Order order;
  must(current_device(order.device));
  order.seed = static_cast<std::uint32_t>(random());
  order.elements = (std::size_t{1} << 24) + 7;
  const std::size_t bytes = order.elements * sizeof(float);
  const auto named = neighbour.order(order);
  if (named.why[0] != '\0') return named.why;
  IpcMemory foreign;
  if (const Status status = foreign.open(named.handle); !status.ok()) {
    findings.check(false, std::string("it is not opened: ") + status.error);
    return {};
  }
  findings.check(foreign.size() >= bytes, "the driver tells " + std::to_string(foreign.size()) +
                                              " of " + std::to_string(bytes) + " bytes");
  {
    IpcMemory again;
    findings.check(again.open(named.handle).ok(), "it is not opened twice");
  }
  auto sum = Neighbour::numbers(order, 0);
  const auto more = Neighbour::numbers(order, 1);
  GuardedArray<float, OnDevice> ours(more, 0);
  GuardedArray<float, OnDevice> out(order.elements, 0);
  auto* theirs = static_cast<float*>(foreign.data());
  Sum<Float32, 2> operation;
  operation.sum.count = 2;
  OnDevice::run(operation, {{{theirs, ours.data()}, out.data(), order.elements}});
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  findings.same(dt::kv::difference(out.values(), sum), "the sum of theirs and ours");
  OnDevice::put(theirs, out.data(), bytes);
  findings.check(neighbour.has_sum(), "the other process does not find the sum");
  neighbour.kill();
  std::vector<float> left(order.elements);
  OnDevice::get(left.data(), theirs, bytes);
  findings.same(dt::kv::difference(left, sum), "the memory of a killed process");
  return {};
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
  Neighbour neighbour;
  if (const std::string why = why_no_device(options.device); !why.empty()) {
    std::fprintf(stderr, "gpu_tests: SKIPPED: %s\n", why.c_str());
    return kNoDeviceExit;
  }
  must(use_device(options.device));
  std::printf("gpu_tests: %s, --seed %llu\n", describe_device(options.device).c_str(),
              static_cast<unsigned long long>(options.seed));
  auto checks = all_checks<OnDevice>();
  checks.push_back({"a large tensor", check_large});
  checks.push_back({"transfers between places", check_transfers});
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
  const auto tell = [&failed](const char* name, const Findings& findings,
                              const std::string& skipped) {
    const char* result = !findings.wrong.empty() ? "FAILED" : skipped.empty() ? "ok" : "SKIPPED";
    std::printf("%-6s %s (%llu)%s%s\n", result, name,
                static_cast<unsigned long long>(findings.made), skipped.empty() ? "" : ": ",
                skipped.c_str());
    for (const auto& sentence : findings.wrong) std::printf("       %s\n", sentence.c_str());
    failed += findings.wrong.empty() ? 0 : 1;
  };
  Random random(options.seed);
  Findings of_neighbour;
  const std::string no_neighbour = check_neighbour(of_neighbour, random, neighbour);
  tell("the memory of another process", of_neighbour, no_neighbour);
  Findings of_group;
  const std::string no_group = check_local_group(of_group, random);
  must(use_device(options.device));
  tell("sums over the GPUs of this machine", of_group, no_group);
  std::printf("gpu_tests: %d failed\n", failed);
  return failed == 0 ? 0 : 1;
}
