// Keys that several GPUs of one process have, through a worker's store, on emulated devices with an
// emulated NCCL: streams do everything as late as they may.

#include <algorithm>
#include <future>
#include <span>

#include "kvstore/api/group_store.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/worker/device/device_tensors.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_device/put.h"
#include "test/support/emulated_nccl/emulated_nccl.h"

using namespace dt;
using namespace dt::test;

namespace multi_device_copies_tests {

constexpr std::size_t kCount = 5001;  // chunks are of 1024 elements
using Values = std::vector<float>;

/// NCCL's deadline in tests where it does not answer: longer than an answer on a busy machine.
constexpr std::chrono::milliseconds kDeadline = 3s;

/// Arrays of a key, one on each device, each with a stream that can be stopped.
class DeviceArrays {
 public:
  explicit DeviceArrays(int devices, std::size_t count = kCount)
      : count_(count), sides_(static_cast<std::size_t>(devices)) {
    for (int d = 0; d < devices; ++d) {
      auto& side = sides_[static_cast<std::size_t>(d)];
      must(kv::cuda::use_device(d));
      must(side.stream.create());
      must(side.memory.allocate(bytes() + 16));
      must(side.pinned.allocate(bytes() + 16));
    }
  }
  ~DeviceArrays() {
    for (std::size_t d = 0; d < sides_.size(); ++d) open(d);
  }
  DeviceArrays(const DeviceArrays&) = delete;
  DeviceArrays& operator=(const DeviceArrays&) = delete;

  void close(std::size_t d) { sides_[d].gate = emulated::hold(sides_[d].stream.get()); }
  void open(std::size_t d) {
    auto& side = sides_[d];
    if (side.gate) std::exchange(side.gate, nullptr)();
    (void)kv::cuda::wait(side.stream.get());
  }
  /// Device d's array becomes `value` * (d + 1), on its stream.
  void put(float value) {
    for (std::size_t d = 0; d < sides_.size(); ++d) {
      auto* from = static_cast<float*>(sides_[d].pinned.data());
      std::fill_n(from, count_, value * static_cast<float>(d + 1));
      must(kv::cuda::copy(sides_[d].memory.data(), from, bytes(), sides_[d].stream.get()));
    }
  }
  /// A read is put on device d's stream.
  void ask(std::size_t d) const {
    const auto& side = sides_[d];
    must(kv::cuda::copy(side.pinned.data(), side.memory.data(), bytes(), side.stream.get()));
  }
  /// The result of device d's read.
  [[nodiscard]] Values answer(std::size_t d) const {
    const auto values = seen(d);
    return {values.begin(), values.end()};
  }
  [[nodiscard]] Values get(std::size_t d) const {
    ask(d);
    return answer(d);
  }
  [[nodiscard]] bool all_are(float value) const {
    for (std::size_t d = 0; d < sides_.size(); ++d) {
      ask(d);
      const auto values = seen(d);
      if (std::any_of(values.begin(), values.end(), [=](float x) { return x != value; }))
        return false;
    }
    return true;
  }
  /// All bytes as they were allocated, without asking the streams.
  [[nodiscard]] bool are_untouched() const {
    for (const auto& side : sides_) {
      const auto* at = static_cast<const unsigned char*>(side.memory.data());
      if (!std::all_of(at, at + bytes(), [](auto b) { return b == emulated::kPoison; }))
        return false;
    }
    return true;
  }
  [[nodiscard]] std::vector<kv::Array> arrays() const {
    std::vector<kv::Array> all;
    for (std::size_t d = 0; d < sides_.size(); ++d) {
      kv::Array array{sides_[d].memory.data(), count_, data::Dtype::kFloat32};
      array.place = {kv::cuda::Place::Kind::kDevice, static_cast<int>(d)};
      array.stream = sides_[d].stream.get();
      all.push_back(std::move(array));
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> keys(const std::string& key) const {
    return std::vector<std::string>(sides_.size(), key);
  }

 private:
  struct Side {
    kv::cuda::UniqueStream stream;
    kv::cuda::DeviceMemory memory;
    kv::cuda::PinnedMemory pinned;
    std::function<void()> gate;
  };
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(float); }
  [[nodiscard]] std::span<const float> seen(std::size_t d) const {
    must(kv::cuda::wait(sides_[d].stream.get()));
    return {static_cast<const float*>(sides_[d].pinned.data()), count_};
  }
  std::size_t count_;
  std::vector<Side> sides_;
};

struct Setting {
  int devices = 2;
  kv::Transport transport = kv::Transport::kTcp;
  std::chrono::milliseconds deadline = 30s;  ///< NCCL's.
  std::uint64_t chunk_bytes = 4096;
};

/// Devices and NCCL, one server behind a wire, one worker with keys "a", "b" and "c"; nothing is
/// alive at the end.
struct World {
  explicit World(const Setting& the = {}) {
    const auto [devices, transport, deadline, chunk_bytes] = the;
    emulated::restart(devices);
    emulated::restart_nccl();
    cluster.emplace(1, 1);
    proxy.emplace(cluster->server().port());
    cluster->transport = transport;
    cluster->device_group.functions = &emulated::nccl();
    cluster->device_group.deadline = deadline;
    cluster->redirect(0, proxy->port());
    store =
        std::make_unique<kv::GroupStore>(cluster->open(0, "dist_device_sync", false, chunk_bytes));
    Values zero(kCount, 0);
    for (const char* key : {"a", "b", "c"}) init(*store, key, zero);
    (void)must(store->epoch_boundary(Epoch(0)));
  }
  ~World() {
    store.reset();
    cluster.reset();
    UNSCOPED_INFO(emulated::leaks());
    CHECK(emulated::leaks().empty());
    CHECK(emulated::nccl_counts().alive == 0);
  }
  kv::Handle pushpull(const std::string& key, const DeviceArrays& values, const DeviceArrays& out,
                      int priority = 0) {
    kv::PushOptions options;
    options.priority = priority;
    return must(store->pushpull(values.keys(key), values.arrays(), out.arrays(), options));
  }
  /// A whole exchange. The first call with arrays on devices adds memory and waits until the
  /// servers have mapped it.
  void exchange(const std::string& key, DeviceArrays& values, const DeviceArrays& out) {
    values.put(0);
    must(wait(pushpull(key, values, out)));
  }
  kv::Handle pull(const std::string& key, const DeviceArrays& out) {
    return must(store->pull(out.keys(key), out.arrays(), {}));
  }
  kv::Status wait(kv::Handle handle, double timeout_s = 30) {
    return store->wait(handle, timeout_s);
  }

  std::optional<Cluster> cluster;
  std::optional<Proxy> proxy;
  std::unique_ptr<kv::Store> store;
};

/// Whether NCCL got this number of calls, one for each rank.
bool nccl_was_asked(std::size_t calls) {
  return eventually([calls] { return emulated::nccl_counts().calls >= calls; });
}
constexpr std::size_t kCallsOfAKey = (4 + 2) * 2;  ///< On two devices: the last chunk is askew.

kv::Transport any_transport() {
  return GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
}

bool is_under_way(const kv::Status& status) {
  return !status && status.error().code == kv::Code::kTimeout;
}

bool fails_with(const kv::Status& status, kv::Code code, const std::string& words) {
  INFO((status ? "it went well" : status.error().message));
  const bool fits = !status && status.error().code == code &&
                    status.error().message.find(words) != std::string::npos;
  CHECK(fits);
  return fits;
}

TEST_CASE("device group: all devices' arrays are one contribution, and all have the value",
          "[device][device-group]") {
  const int devices = GENERATE(2, 3);
  World world({devices, any_transport()});
  const std::string codec = GENERATE("none", "bf16");
  must(world.store->set_gradient_compression(codec));
  const auto sum = static_cast<float>(devices * (devices + 1) / 2);
  DeviceArrays a(devices), b(devices), out(devices), pulled(devices);
  for (float round = 1; round < 4; ++round) {
    a.put(round);
    b.put(round * 2);
    const auto both = world.pushpull("a", a, out);
    const auto pushed = must(world.store->push(b.keys("b"), b.arrays(), {}));
    const auto value = world.pull("b", pulled);
    for (const auto handle : {both, pushed, value}) must(world.wait(handle));
    CHECK(out.all_are(sum * round));
    CHECK(pulled.all_are(sum * round * 2));
    CHECK(a.get(1) == Values(kCount, round * 2));  // only read
  }
}

TEST_CASE("device group: a call with other keys, and in place", "[device][device-group]") {
  World world;
  DeviceArrays a(2), b(2);
  a.put(1);
  b.put(2);
  auto keys = a.keys("a");
  auto arrays = a.arrays();
  Values host(kCount, 7);
  keys.emplace_back("c");
  arrays.push_back(array_of(host));
  for (const auto& array : b.arrays()) {
    keys.emplace_back("b");
    arrays.push_back(array);
  }
  must(world.wait(must(world.store->pushpull(keys, arrays, arrays, {}))));
  CHECK(a.all_are(3));
  CHECK(b.all_are(6));
  CHECK(host == Values(kCount, 7));
}

TEST_CASE("device group: a call returns before the devices are there, and holds up no other",
          "[device][device-group]") {
  World world({2, any_transport()});
  DeviceArrays late(2), late_out(2), other(2), other_out(2);
  late.put(1);
  late.close(1);
  late.put(2);  // behind the gate on one of the devices
  other.put(3);
  const auto first = world.pushpull("a", late, late_out, 1);
  CHECK(is_under_way(world.wait(first, 0.05)));
  CHECK(late_out.are_untouched());
  must(world.wait(world.pushpull("b", other, other_out)));
  CHECK(other_out.all_are(9));
  CHECK(is_under_way(world.wait(first, 0.05)));
  late.open(1);
  must(world.wait(first));
  CHECK(late_out.all_are(6));
}

TEST_CASE("device group: a value waits for what the streams still do with the arrays",
          "[device][device-group]") {
  World world({2, any_transport()});
  DeviceArrays out(2);
  out.close(1);
  const auto pulled = world.pull("a", out);
  CHECK(is_under_way(world.wait(pulled, 0.1)));
  CHECK(out.are_untouched());
  out.open(1);
  must(world.wait(pulled));
  CHECK(out.all_are(0));
}

TEST_CASE("device group: keys are added up while others are on the network",
          "[device][device-group]") {
  World world;
  DeviceArrays a(2), a_out(2), b(2), b_out(2);
  world.proxy->hold(true);
  a.put(1);
  const auto first = world.pushpull("a", a, a_out);
  REQUIRE(nccl_was_asked(kCallsOfAKey));
  CHECK(is_under_way(world.wait(first, 0.05)));
  b.put(2);
  const auto second = world.pushpull("b", b, b_out);
  CHECK(nccl_was_asked(2 * kCallsOfAKey));
  CHECK(a_out.are_untouched());
  world.proxy->hold(false);
  must(world.wait(second));
  must(world.wait(first));
  CHECK(a_out.all_are(3));
  CHECK(b_out.all_are(6));
}

TEST_CASE("device group: what comes on the streams after wait_in_stream sees the value",
          "[device][device-group]") {
  World world({2, any_transport()});
  DeviceArrays a(2), out(2);
  a.put(2);
  must(world.wait(must(world.store->push(a.keys("a"), a.arrays(), {}))));
  const auto go_on = emulated::hold_nccl();
  const auto pulled = world.pull("a", out);
  must(world.store->wait_in_stream(pulled, 30));
  CHECK(is_under_way(world.wait(pulled, 0.05)));
  out.ask(0);
  out.ask(1);
  go_on();
  CHECK(out.answer(0) == Values(kCount, 6));
  CHECK(out.answer(1) == Values(kCount, 6));
  must(world.wait(pulled));
  must(world.store->wait_in_stream(pulled, 30));  // nothing any more
}

TEST_CASE("device group: NCCL's deadline begins when the caller's streams are there",
          "[device][device-group]") {
  World world({2, kv::Transport::kTcp, kDeadline});
  DeviceArrays a(2), out(2);
  a.close(0);
  a.put(1);
  const auto pushed = world.pushpull("a", a, out);
  CHECK(is_under_way(world.wait(pushed, 3.2)));
  a.open(0);
  must(world.wait(pushed));
  CHECK(out.all_are(3));
}

TEST_CASE("device group: a key's next round waits for its turn", "[device][device-group]") {
  World world({2, any_transport()});
  DeviceArrays a(2), b(2), out(2), later(2);
  a.put(1);
  b.put(2);
  const auto first = world.pushpull("a", a, out);
  const auto second = world.pushpull("a", b, later);
  must(world.wait(second));
  must(world.wait(first));
  CHECK(out.all_are(3));
  CHECK(later.all_are(6));
}

struct Trouble {
  emulated::NcclTroubles troubles;
  std::string words;
  std::chrono::milliseconds deadline = 30s;
};
Trouble any_trouble() {
  Trouble it;
  switch (GENERATE(0, 1, 2)) {
    case 0:
      it.troubles.breaks_under_way = 6;
      it.words = "remote process exited";
      break;
    case 1:
      it.troubles.missing_rank = 1;
      it.words = "within 3 s and was aborted";
      it.deadline = kDeadline;
      break;
    default:
      it.troubles.call_fails = 5;
      it.words = "invalid usage";
  }
  return it;
}

TEST_CASE(
    "device group: NCCL's failure in a sum ends all that is under way, and nothing is written",
    "[device][device-group]") {
  const auto [troubles, words, deadline] = any_trouble();
  CAPTURE(words);
  World world({2, any_transport(), deadline});
  DeviceArrays a(2), b(2), c(2), out(2), b_out(2), c_out(2);
  for (auto* late : {&b, &c}) {
    late->close(1);
    late->put(2);
  }
  const auto second = world.pushpull("b", b, b_out);
  const auto third = world.pushpull("c", c, c_out);
  emulated::set_nccl_troubles(troubles);
  a.put(1);
  const auto first = world.pushpull("a", a, out);
  for (const auto handle : {first, second, third})
    CHECK(fails_with(world.wait(handle), kv::Code::kUnavailable, words));
  emulated::set_nccl_troubles({});
  b.open(1);
  c.open(1);
  // Chunks of the first key after the failure may have been copied before its end.
  out.put(9);
  emulated::flush();
  CHECK(out.get(0) == Values(kCount, 9));
  for (const auto* untouched : {&b_out, &c_out}) CHECK(untouched->are_untouched());
  // The next call succeeds.
  must(world.wait(world.pushpull("a", a, out)));
  CHECK(out.all_are(3));
  must(world.wait(world.pushpull("b", b, b_out)));
  CHECK(b_out.all_are(6));
}

TEST_CASE("device group: what breaks while GPUs exchange is found out at once",
          "[device][device-group]") {
  World world;
  DeviceArrays a(2), b(2), out(2), b_out(2);
  a.put(1);
  b.put(1);
  const auto go_on = emulated::hold_nccl();
  const auto first = world.pushpull("a", a, out);
  const auto second = world.pushpull("b", b, b_out);
  REQUIRE(nccl_was_asked(2 * kCallsOfAKey));
  CHECK(is_under_way(world.wait(first, 0.05)));
  emulated::break_nccl(6);
  CHECK(fails_with(world.wait(first), kv::Code::kUnavailable, "remote process exited"));
  CHECK(fails_with(world.wait(second), kv::Code::kUnavailable, "remote process exited"));
  go_on();
  emulated::flush();
  CHECK(out.are_untouched());
}

TEST_CASE("device group: NCCL that never begins is said", "[device][device-group]") {
  World world({2, kv::Transport::kTcp, kDeadline});
  DeviceArrays a(2), b(2), out(2), b_out(2);
  emulated::NcclTroubles troubles;
  troubles.begin_never_ends = true;
  emulated::set_nccl_troubles(troubles);
  a.put(1);
  b.put(1);
  const auto first = world.pushpull("a", a, out);
  const auto second = world.pushpull("b", b, b_out);
  const std::string words = "NCCL could not begin on devices 0, 1 within 3 s and was aborted";
  CHECK(fails_with(world.wait(first), kv::Code::kUnavailable, words));
  CHECK(fails_with(world.wait(second), kv::Code::kUnavailable, words));
  emulated::set_nccl_troubles({});
  must(world.wait(world.pushpull("a", a, out)));
  CHECK(out.all_are(3));
}

TEST_CASE("device group: after a failure a store ends when the caller's streams are there",
          "[device][device-group]") {
  World world;
  DeviceArrays a(2), late(2), out(2), late_out(2);
  late.close(1);
  emulated::NcclTroubles troubles;
  troubles.call_fails = 5;
  const auto second = world.pushpull("b", late, late_out);
  emulated::set_nccl_troubles(troubles);
  a.put(1);
  const auto first = world.pushpull("a", a, out);
  for (const auto handle : {first, second})
    CHECK(fails_with(world.wait(handle), kv::Code::kUnavailable, "invalid usage"));
  // Pending callbacks would use a destroyed store.
  auto end = std::async(std::launch::async, [&] { world.store.reset(); });
  CHECK(end.wait_for(200ms) == std::future_status::timeout);
  late.open(1);
  end.get();
}

TEST_CASE("device group: NCCL's failure on the way back ends the operation, and nothing is written",
          "[device][device-group]") {
  const auto [troubles, words, deadline] = any_trouble();
  CAPTURE(words);
  World world({2, any_transport(), deadline});
  DeviceArrays a(2), out(2);
  world.exchange("a", a, out);
  const std::size_t before = emulated::nccl_counts().calls;
  world.proxy->hold(true);
  a.put(1);
  const auto pushed = world.pushpull("a", a, out);
  REQUIRE(nccl_was_asked(before + kCallsOfAKey));
  CHECK(is_under_way(world.wait(pushed, 0.1)));
  emulated::set_nccl_troubles(troubles);
  world.proxy->hold(false);
  CHECK(fails_with(world.wait(pushed), kv::Code::kUnavailable, words));
  emulated::set_nccl_troubles({});
  out.put(9);
  emulated::flush();
  CHECK(out.get(0) == Values(kCount, 9));
  CHECK(out.get(1) == Values(kCount, 18));
  must(world.wait(world.pushpull("a", a, out)));
  CHECK(out.all_are(3));
}

TEST_CASE("device group: a device that breaks ends the operation", "[device][device-group]") {
  World world;
  {
    DeviceArrays a(2), out(2);
    a.put(1);
    a.close(0);
    a.put(1);
    const auto begun = world.pushpull("a", a, out);
    CHECK(is_under_way(world.wait(begun, 0.1)));
    emulated::break_devices("an illegal memory access was encountered");
    a.open(0);
    fails_with(world.wait(begun), kv::Code::kInternal, "illegal memory access");
    emulated::break_devices(nullptr);
  }
  Values ones(kCount, 1);
  must(pushpull(*world.store, "a", ones, ones, {}));
}

TEST_CASE("device group: no memory to add up in is said, and nothing has begun",
          "[device][device-group]") {
  World world;
  DeviceArrays a(2), out(2);
  a.put(1);
  emulated::limit_device_memory(emulated::alive().device_bytes + 1000);
  fails_with(world.wait(world.pushpull("a", a, out)), kv::Code::kInternal,
             "to add gradients up in");
  emulated::limit_device_memory(std::size_t{1} << 40);
  must(world.wait(world.pushpull("a", a, out)));
  CHECK(out.all_are(3));
}

TEST_CASE("device group: the memory to add up in is bounded", "[device][device-group]") {
  World world({2, kv::Transport::kSharedMemory, 30s, std::uint64_t{1} << 20});
  const auto before = emulated::alive().device_bytes;
  {
    constexpr std::size_t kMany = std::size_t{5} << 20;  // 20 MiB
    Values zero(kMany, 0);
    init(*world.store, "many", zero);
    DeviceArrays many(2, kMany);
    many.put(1);
    must(world.wait(world.pushpull("many", many, many)));
    CHECK(many.get(1) == Values(kMany, 3));
  }
  CHECK(emulated::alive().device_bytes - before <= 2 * (std::size_t{16} << 20));
}

TEST_CASE("device group: a store ends while calls are under way", "[device][device-group]") {
  World world({2, any_transport(), kDeadline});
  DeviceArrays a(2), a_out(2), b(2), b_out(2);
  world.exchange("a", a, a_out);
  world.exchange("b", b, b_out);
  a.put(1);
  b.put(2);
  const int what = GENERATE(0, 1, 2);
  CAPTURE(what);
  if (what == 1) world.proxy->hold_answers(true);
  if (what == 2) {
    emulated::NcclTroubles troubles;
    troubles.missing_rank = 0;
    emulated::set_nccl_troubles(troubles);
  }
  (void)world.pushpull("a", a, a_out);
  (void)world.pushpull("b", b, b_out);
  world.store.reset();
  for (auto* out : {&a_out, &b_out}) out->put(9);
  emulated::flush();
  for (auto* out : {&a_out, &b_out}) CHECK(out->get(1) == Values(kCount, 18));
}

TEST_CASE("device group: after a rollback nothing touches the caller's memory",
          "[device][device-group]") {
  World world({2, any_transport()});
  DeviceArrays a(2), a_out(2), b(2), b_out(2);
  a.put(1);
  b.put(2);
  const bool is_on_the_way_out = GENERATE(false, true);
  CAPTURE(is_on_the_way_out);
  DeviceArrays& late = is_on_the_way_out ? a_out : a;
  late.close(1);
  const auto begun = is_on_the_way_out ? world.pull("a", a_out) : world.pushpull("a", a, a_out);
  const auto behind = world.pushpull("a", b, b_out);
  CHECK(is_under_way(world.wait(begun, 0.1)));
  world.cluster->kill_servers();
  world.proxy->cut();
  world.cluster->replace_servers(Epoch(0), {});
  world.cluster->tell_servers({WorkerId(0)});
  // The copies wait for the stream, the operations for the copies, and the boundary for all that.
  CHECK(is_under_way(world.wait(begun, 0.1)));
  auto boundary =
      std::async(std::launch::async, [&] { return world.store->epoch_boundary(Epoch(1)); });
  CHECK_FALSE(eventually([&] { return world.cluster->arrived() > 0; }, 200ms));
  late.open(1);
  CHECK(must(boundary.get()).rolled_back);
  fails_with(world.wait(begun), kv::Code::kRollback, "a server was lost");
  fails_with(world.wait(behind), kv::Code::kRollback, "a server was lost");
  for (auto* out : {&a_out, &b_out}) out->put(9);
  emulated::flush();
  for (auto* out : {&a_out, &b_out}) CHECK(out->get(1) == Values(kCount, 18));
}

}  // namespace multi_device_copies_tests
