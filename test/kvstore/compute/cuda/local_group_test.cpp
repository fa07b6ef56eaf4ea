#include "kvstore/compute/cuda/local_group.h"

#include <cstring>
#include <numeric>

#include "test/kvstore/compute/cuda/plain_formats.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_nccl/emulated_nccl.h"

using namespace dt::kv::cuda;
using namespace std::chrono_literals;
namespace emulated = dt::test::emulated;

namespace {

/// Four devices, an emulated NCCL, and nothing alive at the end.
struct World {
  World() {
    emulated::restart(4);
    emulated::restart_nccl();
  }
  ~World() {
    UNSCOPED_INFO(emulated::leaks());
    CHECK(emulated::leaks().empty());
    CHECK(emulated::nccl_counts().alive == 0);
  }
  static LocalGroup::Options options(std::chrono::milliseconds deadline = 20s) {
    LocalGroup::Options out;
    out.functions = &emulated::nccl();
    out.deadline = deadline;
    return out;
  }
};

/// An array on each device, on its own stream, with values that depend on device and place.
template <class Element>
struct Arrays {
  Arrays(const std::vector<int>& devices, std::size_t count,
         const std::function<Element(int, std::size_t)>& value)
      : elements(count), memory(devices.size()), values(devices.size()) {
    for (std::size_t i = 0; i < devices.size(); ++i) {
      REQUIRE(use_device(devices[i]).ok());
      streams.push_back(std::make_unique<UniqueStream>());
      REQUIRE(streams.back()->create().ok());
      REQUIRE(memory[i].allocate(count * sizeof(Element) + kGuard).ok());
      for (std::size_t e = 0; e < count; ++e) values[i].push_back(value(devices[i], e));
      const Stream stream = streams.back()->get();
      REQUIRE(fill(memory[i].data(), 0x5a, memory[i].size(), stream).ok());
      REQUIRE(copy(memory[i].data(), values[i].data(), count * sizeof(Element), stream).ok());
    }
  }
  ~Arrays() { emulated::flush(); }
  [[nodiscard]] std::vector<LocalGroup::Array> group() const {
    std::vector<LocalGroup::Array> out;
    for (std::size_t i = 0; i < memory.size(); ++i)
      out.push_back({memory[i].data(), streams[i]->get()});
    return out;
  }
  [[nodiscard]] const Element* of(std::size_t rank) const {
    return static_cast<const Element*>(memory[rank].data());
  }
  [[nodiscard]] bool guards_are_whole() const {
    for (const DeviceMemory& one : memory)
      for (std::size_t i = 0; i < kGuard; ++i)
        if (static_cast<const unsigned char*>(one.data())[one.size() - kGuard + i] != 0x5a)
          return false;
    return true;
  }

  static constexpr std::size_t kGuard = 32;
  std::size_t elements;
  std::vector<DeviceMemory> memory;
  std::vector<std::vector<Element>> values;
  std::vector<std::unique_ptr<UniqueStream>> streams;
};

std::vector<int> first_devices(std::size_t count) {
  std::vector<int> out(count);
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Small integers, whose sums are exact in every format.
template <class Format>
void sums_and_gathers(NcclType type, std::size_t devices, std::size_t elements) {
  using Element = typename Format::Element;
  INFO(devices << " devices, " << elements << " elements, type " << static_cast<int>(type));
  World world;
  LocalGroup group(World::options());
  REQUIRE(group.use(first_devices(devices)).empty());
  const auto value = [](int device, std::size_t e) {
    return static_cast<float>((device + 1) * static_cast<int>(e % 13 + 1));
  };
  Arrays<Element> arrays(first_devices(devices), elements, [&](int device, std::size_t e) {
    return Plain<Format>::narrow(static_cast<typename Format::Math>(value(device, e)));
  });
  const auto wanted = [&](std::size_t e) {
    float sum = 0;
    for (const int device : first_devices(devices)) sum += value(device, e);
    return Plain<Format>::narrow(static_cast<typename Format::Math>(sum));
  };
  REQUIRE(group.reduce_scatter(arrays.group(), elements, type).empty());
  REQUIRE(group.wait().empty());
  if (devices == 1 || elements == 0) emulated::flush();  // the group has nothing to wait for
  bool is_right = true;
  for (std::size_t rank = 0; rank < devices; ++rank) {
    const Part part = part_of(elements, type, devices, rank);
    for (std::size_t e = part.begin; e < part.begin + part.size; ++e)
      is_right &=
          std::memcmp(&arrays.of(rank)[e], std::vector{wanted(e)}.data(), sizeof(Element)) == 0;
  }
  CHECK(is_right);
  REQUIRE(group.all_gather(arrays.group(), elements, type).empty());
  REQUIRE(group.wait().empty());
  for (std::size_t rank = 0; rank < devices; ++rank)
    for (std::size_t e = 0; e < elements; ++e)
      is_right &=
          std::memcmp(&arrays.of(rank)[e], std::vector{wanted(e)}.data(), sizeof(Element)) == 0;
  CHECK(is_right);
  CHECK(arrays.guards_are_whole());
}

struct Int64 {
  using Element = std::int64_t;
  using Math = std::int64_t;
};

/// Two devices for injected errors.
struct Pair : World {
  explicit Pair(std::chrono::milliseconds deadline = 20s) : group(options(deadline)) {}
  std::string sum() {
    Arrays<float> arrays({0, 1}, 100, [](int, std::size_t) { return 1.0F; });
    std::string why = group.reduce_scatter(arrays.group(), arrays.elements, NcclType::kFloat32);
    if (why.empty()) why = group.wait();
    return why;
  }
  LocalGroup group;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("local group: parts cover the array once and begin at multiples of 16 bytes",
          "[local_group]") {
  for (const NcclType type : {NcclType::kFloat16, NcclType::kFloat32, NcclType::kFloat64})
    for (std::size_t ranks = 1; ranks <= 9; ++ranks)
      for (std::size_t elements = 0; elements < 200; ++elements) {
        std::size_t next = 0;
        for (std::size_t rank = 0; rank < ranks; ++rank) {
          const Part part = part_of(elements, type, ranks, rank);
          if (part.begin != next || part.begin * size_of(type) % 16 != 0) FAIL("a gap");
          next += part.size;
        }
        if (next != elements) FAIL("not all");
        const Part last = part_of(elements, type, ranks, ranks - 1);
        const Part first = part_of(elements, type, ranks, 0);
        if ((last.size - first.size) * size_of(type) >= ranks * 16) FAIL("too uneven");
      }
}

TEST_CASE("local group: the sum is in every part, and gathered in every array", "[local_group]") {
  for (const std::size_t devices : {1U, 2U, 3U, 4U})
    for (const std::size_t elements : {0U, 1U, 3U, 16U, 64U, 100U, 1023U}) {
      sums_and_gathers<Float32>(NcclType::kFloat32, devices, elements);
      sums_and_gathers<Float64>(NcclType::kFloat64, devices, elements);
      sums_and_gathers<Fp16>(NcclType::kFloat16, devices, elements);
      sums_and_gathers<Bf16>(NcclType::kBFloat16, devices, elements);
      sums_and_gathers<Int64>(NcclType::kInt64, devices, elements);
    }
}

TEST_CASE("local group: one device needs no NCCL at all", "[local_group]") {
  World world;
  LocalGroup::Options options;
  options.library = "/nowhere/libnccl.so.2";
  LocalGroup group(options);
  REQUIRE(group.use({2}).empty());
  Arrays<float> arrays({2}, 10, [](int, std::size_t e) { return static_cast<float>(e); });
  CHECK(group.reduce_scatter(arrays.group(), 10, NcclType::kFloat32).empty());
  CHECK(group.all_gather(arrays.group(), 10, NcclType::kFloat32).empty());
  CHECK(group.wait().empty());
  CHECK(emulated::nccl_counts().calls == 0);
  const std::string why = group.use({0, 1});
  CHECK(has(why, "several GPUs need NCCL: "));
  CHECK(has(why, "LD_LIBRARY_PATH"));
}

TEST_CASE("local group: other devices make new communicators, the same ones none",
          "[local_group]") {
  World world;
  LocalGroup group(World::options());
  REQUIRE(group.use({0, 1}).empty());
  REQUIRE(group.use({0, 1}).empty());
  CHECK(emulated::nccl_counts().begun == 1);
  REQUIRE(group.use({1, 0, 3}).empty());
  CHECK(emulated::nccl_counts().begun == 2);
  CHECK(emulated::nccl_counts().destroyed == 2);
  CHECK(emulated::nccl_counts().alive == 3);
  CHECK(emulated::nccl_counts().aborted == 0);
  Arrays<float> arrays({1, 0, 3}, 50,
                       [](int device, std::size_t) { return static_cast<float>(device); });
  REQUIRE(group.reduce_scatter(arrays.group(), 50, NcclType::kFloat32).empty());
  REQUIRE(group.all_gather(arrays.group(), 50, NcclType::kFloat32).empty());
  REQUIRE(group.wait().empty());
  for (std::size_t rank = 0; rank < 3; ++rank) CHECK(arrays.of(rank)[49] == 4.0F);
  REQUIRE(group.use({2}).empty());
  CHECK(emulated::nccl_counts().alive == 0);
}

TEST_CASE("local group: the caller's device stays current", "[local_group]") {
  World world;
  LocalGroup group(World::options());
  REQUIRE(use_device(3).ok());
  const auto current = [] {
    int device = -1;
    return current_device(device).ok() ? device : -1;
  };
  REQUIRE(group.use({0, 1, 2}).empty());
  CHECK(current() == 3);
  Arrays<float> arrays({0, 1, 2}, 50, [](int, std::size_t) { return 1.0F; });
  REQUIRE(use_device(3).ok());
  REQUIRE(group.reduce_scatter(arrays.group(), 50, NcclType::kFloat32).empty());
  REQUIRE(group.wait().empty());
  CHECK(current() == 3);
  group.abort();
  CHECK(current() == 3);
}

TEST_CASE("local group: an error at the begin is one sentence, and a second try may go well",
          "[local_group]") {
  Pair pair;
  emulated::nccl_troubles().begin_fails = 2;
  const std::string why = pair.group.use({0, 1});
  CHECK(why ==
        "NCCL could not begin on devices 0, 1: unhandled system error (run with NCCL_DEBUG=INFO "
        "for details) (the last words): often /dev/shm is too small or no network interface is "
        "up; NCCL_DEBUG=WARN says more");
  CHECK(emulated::nccl_counts().aborted == 2);
  CHECK(emulated::nccl_counts().alive == 0);
  CHECK(pair.sum() == why);
  emulated::nccl_troubles().begin_fails = 0;
  REQUIRE(pair.group.use({0, 1}).empty());
  CHECK(pair.sum().empty());
}

TEST_CASE("local group: a begin that never ends is aborted at the deadline", "[local_group]") {
  Pair pair(50ms);
  emulated::nccl_troubles().begin_never_ends = true;
  const std::string why = pair.group.use({0, 1});
  CHECK(has(why, "NCCL could not begin on devices 0, 1 within 50 ms and was aborted: "));
  CHECK(emulated::nccl_counts().aborted == 2);
}

TEST_CASE("local group: a call that is refused, and an error while it is under way",
          "[local_group]") {
  Pair pair;
  REQUIRE(pair.group.use({0, 1}).empty());
  SECTION("refused") {
    emulated::nccl_troubles().call_fails = 5;
    const std::string why = pair.sum();
    CHECK(has(why, "NCCL could not sum arrays on devices 0, 1: invalid usage"));
    CHECK(has(why, "is a device named twice"));
  }
  SECTION("under way") {
    emulated::nccl_troubles().breaks_under_way = 6;
    CHECK(has(pair.sum(), "NCCL could not sum arrays on devices 0, 1: remote process exited"));
  }
  CHECK(emulated::nccl_counts().aborted == 2);
  // It makes no further call until the group is created again.
  const std::size_t calls = emulated::nccl_counts().calls;
  CHECK_FALSE(pair.sum().empty());
  CHECK_FALSE(pair.group.check().empty());
  CHECK_FALSE(pair.group.wait().empty());
  CHECK(emulated::nccl_counts().calls == calls);
  REQUIRE(pair.group.use({0, 1}).empty());
  CHECK(pair.sum().empty());
}

TEST_CASE("local group: a rank that never arrives is waited for until the deadline",
          "[local_group]") {
  Pair pair(100ms);
  REQUIRE(pair.group.use({0, 1}).empty());
  emulated::nccl_troubles().missing_rank = 1;
  CHECK(has(pair.sum(), "NCCL could not sum arrays on devices 0, 1 within 100 ms and was aborted"));
  CHECK(emulated::nccl_counts().aborted == 2);
  emulated::nccl_troubles().missing_rank = -1;
  REQUIRE(pair.group.use({0, 1}).empty());
  CHECK(pair.sum().empty());
}

TEST_CASE("local group: given up by name, and a device that breaks", "[local_group]") {
  Pair pair;
  REQUIRE(pair.group.use({0, 1}).empty());
  SECTION("by name") {
    pair.group.abort();
    CHECK(has(pair.sum(), "given up on request"));
  }
  SECTION("the device") {
    Arrays<float> arrays({0, 1}, 100, [](int, std::size_t) { return 1.0F; });
    REQUIRE(pair.group.reduce_scatter(arrays.group(), 100, NcclType::kFloat32).empty());
    emulated::break_devices("uncorrectable ECC error encountered");
    const std::string why = pair.group.wait();
    CHECK(has(why, "could not sum arrays on devices 0, 1: uncorrectable ECC error encountered"));
    emulated::break_devices(nullptr);
  }
  CHECK(emulated::nccl_counts().alive == 0);
}

TEST_CASE("local group: what it refuses", "[local_group]") {
  World world;
  LocalGroup group(World::options());
  CHECK(group.reduce_scatter({}, 1, NcclType::kFloat32) == "the group has no devices yet");
  CHECK(group.use({}) == "a group of no devices has nothing to sum");
  CHECK(group.use({1, 1}) == "device 1 is in the group twice");
  CHECK(group.use({0, 7}) == "no CUDA device 7: this machine has 4");
  REQUIRE(group.use({0, 1}).empty());
  Arrays<float> arrays({0, 1}, 100, [](int, std::size_t) { return 1.0F; });
  auto some = arrays.group();
  some[1].data = static_cast<float*>(some[1].data) + 1;
  CHECK(has(group.reduce_scatter(some, 99, NcclType::kFloat32), "multiple of 16 bytes"));
  some.pop_back();
  CHECK(group.all_gather(some, 99, NcclType::kFloat32) == "1 arrays for a group of 2 devices");
  CHECK(emulated::nccl_counts().calls == 0);
  CHECK(group.check().empty());
}

TEST_CASE("nccl: the library that is found, or why none is", "[local_group]") {
  NcclFunctions functions;
  CHECK(has(open_nccl(functions, "libm.so.6"), "libm.so.6 is no NCCL, or one before 2.14"));
  if (const std::string why = open_nccl(functions, DT_NCCL); !why.empty()) {
    WARN("SKIPPED: " << why);
    return;
  }
  CHECK(std::string(functions.GetErrorString(6)).size() > 5);
}
