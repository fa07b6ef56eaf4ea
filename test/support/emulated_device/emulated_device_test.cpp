/// The emulated device itself: it does what CUDA guarantees, as late as CUDA allows.
#include "test/support/emulated_device/emulated_device.h"

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/device_guard.h"
#include "kvstore/compute/cuda/launch.h"
#include "kvstore/compute/cuda/sum.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/put.h"

using namespace dt::kv::cuda;
namespace emulated = dt::test::emulated;

namespace {

/// A machine of its own for each test, left clean.
struct Fresh {
  explicit Fresh(int devices = 1) { emulated::restart(devices); }
  ~Fresh() {
    const auto left = emulated::leaks();
    if (left.empty()) return;
    FAIL_CHECK(left);
  }
};

struct Pinned {
  explicit Pinned(std::vector<float> numbers) : count(numbers.size()) {
    REQUIRE(memory.allocate(count * sizeof(float)).ok());
    std::copy(numbers.begin(), numbers.end(), data());
  }
  [[nodiscard]] float* data() const { return static_cast<float*>(memory.data()); }
  [[nodiscard]] std::vector<float> values() const { return {data(), data() + count}; }
  PinnedMemory memory;
  std::size_t count;
};

const std::vector<float> kOnes(100, 1.0F);
const std::vector<float> kZeros(100, 0.0F);

}  // namespace

TEST_CASE("emulated device: who does not wait sees what was there before", "[emulated]") {
  const Fresh machine;
  const Pinned from(kOnes);
  const Pinned to(kZeros);
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  REQUIRE(copy(to.data(), from.data(), 400, stream.get()).ok());
  CHECK(to.values() == kZeros);
  SECTION("until it waits for the stream") { REQUIRE(wait(stream.get()).ok()); }
  SECTION("until it waits for an event") {
    Event event;
    REQUIRE(event.create().ok());
    REQUIRE(event.record(stream.get()).ok());
    CHECK(to.values() == kZeros);
    REQUIRE(event.wait().ok());
  }
  SECTION("until an event is asked again") {
    Event event;
    REQUIRE(event.create().ok());
    REQUIRE(event.record(stream.get()).ok());
    bool is_done = true;
    REQUIRE(event.query(is_done).ok());
    CHECK_FALSE(is_done);
    CHECK(to.values() == kZeros);
    REQUIRE(event.query(is_done).ok());
    CHECK(is_done);
  }
  SECTION("until everything is flushed") { emulated::flush(); }
  CHECK(to.values() == kOnes);
}

TEST_CASE("emulated device: an event does the work before it and none after it", "[emulated]") {
  const Fresh machine;
  const Pinned ones(kOnes);
  const Pinned twos(std::vector<float>(100, 2.0F));
  const Pinned to(kZeros);
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  Event event;
  REQUIRE(event.create().ok());
  REQUIRE(copy(to.data(), ones.data(), 400, stream.get()).ok());
  REQUIRE(event.record(stream.get()).ok());
  REQUIRE(copy(to.data(), twos.data(), 400, stream.get()).ok());
  REQUIRE(event.wait().ok());
  CHECK(to.values() == kOnes);
  REQUIRE(wait(stream.get()).ok());
  CHECK(to.values() == twos.values());
}

TEST_CASE("emulated device: streams wait for each other where they are told to", "[emulated]") {
  const Fresh machine;
  const Pinned from(kOnes);
  const Pinned between(kZeros);
  const Pinned to(kZeros);
  UniqueStream first;
  UniqueStream second;
  REQUIRE(first.create().ok());
  REQUIRE(second.create().ok());
  REQUIRE(copy(between.data(), from.data(), 400, first.get()).ok());
  const bool is_held_back = GENERATE(false, true);
  if (is_held_back) {
    Event event;  // destroyed before any work is done
    REQUIRE(event.create().ok());
    REQUIRE(event.record(first.get()).ok());
    REQUIRE(event.make_wait(second.get()).ok());
  }
  REQUIRE(copy(to.data(), between.data(), 400, second.get()).ok());
  REQUIRE(wait(second.get()).ok());
  CHECK(to.values() == (is_held_back ? kOnes : kZeros));
}

TEST_CASE("emulated device: a launch computes, and breaks the device on ordinary memory",
          "[emulated]") {
  const Fresh machine;
  const Pinned ones(kOnes);
  std::vector<float> ordinary(100, 1.0F);
  DeviceMemory out;
  REQUIRE(out.allocate(400).ok());
  const Pinned back(kZeros);
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  Sum<Float32, 2> sum;
  sum.sum.count = 2;
  Sum<Float32, 2>::Tensor tensor;
  tensor.sources[0] = ones.data();
  tensor.sources[1] = ordinary.data();
  tensor.out = static_cast<float*>(out.data());
  tensor.elements = 100;
  PinnedRegistration registration;
  const bool is_registered = GENERATE(true, false);
  if (is_registered) REQUIRE(registration.add(ordinary.data(), 400).ok());
  REQUIRE(launch(sum, tensor, nullptr, stream.get()).ok());
  if (is_registered) {
    REQUIRE(copy(back.data(), out.data(), 400, stream.get()).ok());
    REQUIRE(wait(stream.get()).ok());
    CHECK(back.values() == std::vector<float>(100, 2.0F));
    CHECK(emulated::done().launches == 1);
  } else {
    const Status status = wait(stream.get());
    REQUIRE_FALSE(status.ok());
    CHECK(std::string(status.error) == "an illegal memory access was encountered");
    CHECK_FALSE(copy(back.data(), out.data(), 400, stream.get()).ok());
    emulated::break_devices(nullptr);
  }
}

TEST_CASE("emulated device: memory is poisoned, limited and counted", "[emulated]") {
  const Fresh machine;
  emulated::limit_device_memory(1000);
  DeviceMemory memory;
  REQUIRE(memory.allocate(600).ok());
  CHECK(static_cast<unsigned char*>(memory.data())[599] == emulated::kPoison);
  DeviceMemory more;
  const Status status = more.allocate(401);
  REQUIRE_FALSE(status.ok());
  CHECK(std::string(status.error) == "out of memory");
  CHECK(emulated::leaks() == "1 device memories");
  memory = DeviceMemory();
  CHECK(more.allocate(401).ok());
}

TEST_CASE("emulated device: without a device every call says so", "[emulated]") {
  const Fresh machine(0);
  CHECK(why_no_device() == "no CUDA device on this machine");
  CHECK_FALSE(UniqueStream().create().ok());
  CHECK_FALSE(DeviceMemory().allocate(8).ok());
  CHECK_FALSE(PinnedMemory().allocate(8).ok());
}

TEST_CASE("emulated device: each thread has its own current device", "[emulated]") {
  const Fresh machine(2);
  CHECK(why_no_device(1).empty());
  CHECK(why_no_device(2) == "no CUDA device 2: this machine has 2");
  REQUIRE(use_device(1).ok());
  int other = -1;
  std::thread([&other] { static_cast<void>(current_device(other)); }).join();
  CHECK(other == 0);
  CHECK_FALSE(use_device(2).ok());
  REQUIRE(use_device(0).ok());
}

TEST_CASE("emulated device: what is made current, or where something is made, has a context",
          "[emulated]") {
  const Fresh machine(4);
  std::thread([] {
    CHECK(emulated::contexts().empty());
    Event event;
    REQUIRE(event.create().ok());
    CHECK(emulated::contexts() == std::set<int>{0});
    REQUIRE(use_device(3).ok());
    CHECK(emulated::contexts() == std::set<int>{0, 3});
    { const DeviceGuard here(1); }
    CHECK(has_context(1));
    CHECK_FALSE(has_context(2));
  }).join();
  emulated::restart(4);
  std::thread([] {  // it used no device before
    { const DeviceGuard here(1); }
    CHECK(emulated::contexts() == std::set<int>{1});
    PinnedMemory pinned;
    REQUIRE(pinned.allocate(8).ok());
    CHECK(emulated::contexts() == std::set<int>{1});
    { const DeviceGuard keep; }
    CHECK(emulated::contexts() == std::set<int>{1});
    { const DeviceGuard here(2); }
    int device = -1;
    REQUIRE(current_device(device).ok());
    CHECK(device == 1);
  })
      .join();
}

TEST_CASE("emulated device: a launch is refused on a stream of a device that is not the thread's",
          "[emulated]") {
  const Fresh machine(2);
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  const Pinned values(kOnes);
  const auto add = [&] {
    const Add<Float32>::Tensor tensor = {static_cast<float*>(values.data()),
                                         static_cast<const float*>(values.data()), 100};
    return launch(Add<Float32>(), tensor, nullptr, stream.get());
  };
  REQUIRE(use_device(1).ok());
  CHECK_FALSE(add().ok());
  REQUIRE(use_device(0).ok());
  CHECK(add().ok());
  CHECK(wait(stream.get()).ok());
}

TEST_CASE(
    "emulated device: a call back comes after the work before it, and the work after it comes "
    "after its return",
    "[emulated]") {
  const Fresh machine;
  const Pinned ones(kOnes);
  const Pinned between(kZeros);
  const Pinned to(kZeros);
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  REQUIRE(copy(between.data(), ones.data(), 400, stream.get()).ok());
  struct Seen {
    const Pinned& between;
    std::vector<float> values;
    std::thread::id thread;
  } seen{between, {}, {}};
  const auto look = [](void* argument) {
    auto& into = *static_cast<Seen*>(argument);
    into.values = into.between.values();
    into.thread = std::this_thread::get_id();
    into.between.data()[0] = 7;
  };
  REQUIRE(add_callback(stream.get(), look, &seen).ok());
  REQUIRE(copy(to.data(), between.data(), 400, stream.get()).ok());
  REQUIRE(wait(stream.get()).ok());
  CHECK(seen.values == kOnes);
  CHECK(seen.thread != std::this_thread::get_id());
  CHECK(to.values()[0] == 7);
}

TEST_CASE("emulated device: a call back comes though nobody waits", "[emulated]") {
  const Fresh machine;
  struct Told {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_told = false;
  } told;
  {
    UniqueStream other;  // its work is done although it is destroyed
    UniqueStream stream;
    REQUIRE(other.create().ok());
    REQUIRE(stream.create().ok());
    Event event;
    REQUIRE(event.create().ok());
    REQUIRE(fill(nullptr, 0, 0, other.get()).ok());
    REQUIRE(event.record(other.get()).ok());
    REQUIRE(event.make_wait(stream.get()).ok());
    const auto tell = [](void* argument) {
      auto& it = *static_cast<Told*>(argument);
      const std::lock_guard lock(it.mutex);
      it.is_told = true;
      it.changed.notify_all();
    };
    REQUIRE(add_callback(stream.get(), tell, &told).ok());
  }
  std::unique_lock lock(told.mutex);
  CHECK(told.changed.wait_for(lock, std::chrono::seconds(20), [&] { return told.is_told; }));
}

TEST_CASE("emulated device: threads on streams that wait for each other all get on", "[emulated]") {
  const Fresh machine;
  constexpr int kStreams = 4;
  constexpr int kRounds = 200;
  std::vector<UniqueStream> streams(kStreams);
  std::vector<Event> events(kStreams);
  for (auto& stream : streams) REQUIRE(stream.create().ok());
  for (auto& event : events) REQUIRE(event.create().ok());
  std::mutex order;  // an Event is used by one thread at a time
  std::atomic<int> called = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kStreams; ++t)
    threads.emplace_back([&, t] {
      const auto mine = static_cast<std::size_t>(t);
      const auto next = static_cast<std::size_t>((t + 1) % kStreams);
      for (int round = 0; round < kRounds; ++round) {
        {
          const std::lock_guard lock(order);
          failed += events[mine].record(streams[mine].get()).ok() ? 0 : 1;
          failed += events[mine].make_wait(streams[next].get()).ok() ? 0 : 1;
        }
        const auto count = [](void* argument) { ++*static_cast<std::atomic<int>*>(argument); };
        failed += add_callback(streams[mine].get(), count, &called).ok() ? 0 : 1;
        if (round % 3 == 0) failed += wait(streams[mine].get()).ok() ? 0 : 1;
      }
    });
  for (auto& thread : threads) thread.join();
  emulated::flush();
  CHECK(failed == 0);
  CHECK(called == kStreams * kRounds);
}

TEST_CASE("emulated device: memory is named to others and found by the name", "[emulated]") {
  const Fresh machine;
  DeviceMemory memory;
  REQUIRE(memory.allocate(5000).ok());
  MemoryHandle handle;
  REQUIRE(export_memory(memory, handle).ok());
  {
    IpcMemory foreign;
    REQUIRE(foreign.open(handle).ok());
    CHECK(foreign.data() != memory.data());
    CHECK(foreign.size() == 5000);
    CHECK(emulated::alive().foreign_memories == 1);
    static_cast<char*>(memory.data())[4999] = 7;
    CHECK(static_cast<char*>(foreign.data())[4999] == 7);
  }
  CHECK(emulated::alive().foreign_memories == 0);
  emulated::refuse_foreign("invalid device context");
  CHECK(IpcMemory().open(handle).error == std::string_view("invalid device context"));
  emulated::refuse_foreign(nullptr);
  memory = DeviceMemory();
  CHECK_FALSE(IpcMemory().open(handle).ok());
}

TEST_CASE("emulated device: who frees what others have open is told of", "[emulated]") {
  {
    const Fresh machine;
    DeviceMemory memory;
    REQUIRE(memory.allocate(64).ok());
    std::memset(memory.data(), 0, 64);
    MemoryHandle handle;
    REQUIRE(export_memory(memory, handle).ok());
    IpcMemory foreign;
    REQUIRE(foreign.open(handle).ok());
    memory = DeviceMemory();
    CHECK(static_cast<unsigned char*>(foreign.data())[63] == emulated::kPoison);
    CHECK(emulated::done().freed_while_open == 1);
    foreign = IpcMemory();
    CHECK(emulated::leaks() == "1 memories freed while they were open");
    emulated::restart();
  }
  CHECK(emulated::leaks().empty());
}

TEST_CASE("emulated device: who asks is not kept by a stream that is busy before a gate",
          "[emulated]") {
  const Fresh machine;
  UniqueStream stream;
  REQUIRE(stream.create().ok());
  std::promise<void> begun;
  std::promise<void> goes_on;
  const auto work = [&] {
    begun.set_value();
    goes_on.get_future().wait();
  };
  REQUIRE(emulated::put(stream.get(), work).ok());
  const auto open = emulated::hold(stream.get());
  Event event;
  REQUIRE(event.create().ok());
  REQUIRE(event.record(stream.get()).ok());
  std::thread runs([&] { (void)event.wait(); });
  begun.get_future().wait();
  auto asks = std::async(std::launch::async, [&event] {
    bool has_passed = false;
    for (int i = 0; i < 3; ++i) (void)event.query(has_passed);
    return has_passed;
  });
  const bool is_kept = asks.wait_for(std::chrono::seconds(5)) == std::future_status::timeout;
  goes_on.set_value();
  open();
  runs.join();
  CHECK_FALSE(is_kept);
  CHECK(asks.get() == is_kept);  // it had not passed
}
