// A key's arrays on several GPUs of one process, on emulated devices with an emulated NCCL.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/api/group_store.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"
#include "test/support/emulated_nccl/emulated_nccl.h"

using namespace dt;
namespace emulated = dt::test::emulated;

namespace device_group_tests {

constexpr std::size_t kElements = 3'001;  // no multiple of the devices' items
using Values = std::vector<float>;
using Place = kv::cuda::Place;

/// Devices, an emulated NCCL, a store of one worker over them; nothing is alive at the end.
struct World {
  explicit World(int devices) {
    emulated::restart(devices);
    emulated::restart_nccl();
    kv::cuda::LocalGroup::Options group;
    group.functions = &emulated::nccl();
    group.deadline = std::chrono::seconds(30);
    store = std::make_unique<kv::GroupStore>(kv::make_local_store("device"), group);
  }
  ~World() {
    store.reset();
    UNSCOPED_INFO(emulated::leaks());
    CHECK(emulated::leaks().empty());
    CHECK(emulated::nccl_counts().alive == 0);
  }
  std::unique_ptr<kv::GroupStore> store;
};

/// An array on a device, with its own stream.
class Tensor {
 public:
  explicit Tensor(int device, std::size_t count = kElements) : device_(device), count_(count) {
    REQUIRE(kv::cuda::use_device(device).ok());
    REQUIRE(stream_.create().ok());
    REQUIRE(memory_.allocate(count * sizeof(float) + sizeof(float)).ok());
  }
  ~Tensor() { (void)kv::cuda::wait(stream_.get()); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  /// Put on the stream, not waited for.
  Tensor& fill(float value) {
    values_.assign(count_, value);
    REQUIRE(kv::cuda::use_device(device_).ok());
    REQUIRE(kv::cuda::copy(memory_.data(), values_.data(), bytes(), stream_.get()).ok());
    return *this;
  }
  [[nodiscard]] Values read() const {
    Values out(count_);
    REQUIRE(kv::cuda::use_device(device_).ok());
    REQUIRE(kv::cuda::copy(out.data(), memory_.data(), bytes(), stream_.get()).ok());
    REQUIRE(kv::cuda::wait(stream_.get()).ok());
    return out;
  }
  /// `skip` elements behind the memory's begin.
  [[nodiscard]] kv::Array array(std::size_t skip = 0) const {
    kv::Array array;
    array.data = static_cast<float*>(memory_.data()) + skip;
    array.count = count_ - skip;
    array.dtype = data::Dtype::kFloat32;
    array.place = {Place::Kind::kDevice, device_};
    array.stream = stream_.get();
    return array;
  }

 private:
  [[nodiscard]] std::size_t bytes() const { return count_ * sizeof(float); }
  int device_;
  std::size_t count_;
  kv::cuda::UniqueStream stream_;
  kv::cuda::DeviceMemory memory_;
  Values values_;
};

kv::Array on_host(Values& values) {
  kv::Array array;
  array.data = values.data();
  array.count = values.size();
  array.dtype = data::Dtype::kFloat32;
  return array;
}

void must(const kv::Status& status) {
  INFO((status ? std::string() : status.error().message));
  REQUIRE(status);
}

void init(kv::Store& store, const std::string& key, std::size_t count = kElements) {
  Values zero(count, 0);
  must(store.init({key}, {on_host(zero)}, 0));
}

kv::Status pushpull(kv::Store& store, const std::vector<std::string>& keys,
                    const std::vector<kv::Array>& values, const std::vector<kv::Array>& out) {
  auto handle = store.pushpull(keys, values, out, {});
  if (!handle) return tl::unexpected(handle.error());
  return store.wait(*handle, 30);
}

TEST_CASE("GPUs of one process: their arrays are one contribution, each carries its own part",
          "[device-group]") {
  for (const int devices : {2, 3, 4}) {
    World world(devices);
    init(*world.store, "w");
    init(*world.store, "v", 5);  // less than an item for each
    std::vector<std::unique_ptr<Tensor>> w, v, w_out, v_out;
    std::vector<kv::Array> values, out;
    std::vector<std::string> keys;
    float sum = 0;
    for (int d = 0; d < devices; ++d) {
      w.push_back(std::make_unique<Tensor>(d));
      w_out.push_back(std::make_unique<Tensor>(d));
      w[static_cast<std::size_t>(d)]->fill(static_cast<float>(d + 1));
      sum += static_cast<float>(d + 1);
      keys.emplace_back("w");
      values.push_back(w.back()->array());
      out.push_back(w_out.back()->array());
    }
    for (int d = 0; d < devices; ++d) {
      v.push_back(std::make_unique<Tensor>(d, 5));
      v_out.push_back(std::make_unique<Tensor>(d, 5));
      v.back()->fill(0.5F);
      keys.emplace_back("v");
      values.push_back(v.back()->array());
      out.push_back(v_out.back()->array());
    }
    for (int round = 0; round < 2; ++round) must(pushpull(*world.store, keys, values, out));
    for (int d = 0; d < devices; ++d) {
      const auto at = static_cast<std::size_t>(d);
      CHECK(w_out[at]->read() == Values(kElements, sum));
      CHECK(v_out[at]->read() == Values(5, 0.5F * static_cast<float>(devices)));
      CHECK(w[at]->read() == Values(kElements, static_cast<float>(d + 1)));  // only read
    }
  }
}

TEST_CASE("GPUs of one process: others than before, and a pull to all of them", "[device-group]") {
  World world(3);
  init(*world.store, "w");
  Tensor a(0), b(1), c(2);
  a.fill(1);
  b.fill(2);
  c.fill(4);
  must(pushpull(*world.store, {"w", "w"}, {a.array(), b.array()}, {a.array(), b.array()}));
  CHECK(a.read() == Values(kElements, 3));
  must(pushpull(*world.store, {"w", "w"}, {c.array(), b.array()}, {c.array(), b.array()}));
  CHECK(c.read() == Values(kElements, 7));
  auto handle = world.store->pull({"w", "w", "w"}, {a.array(), b.array(), c.array()}, {});
  REQUIRE(handle);
  must(world.store->wait(*handle, 30));
  for (const auto* each : {&a, &b, &c}) CHECK(each->read() == Values(kElements, 7));
}

TEST_CASE("GPUs of one process: with an array on the host, or one that begins askew, by the host",
          "[device-group]") {
  World world(2);
  init(*world.store, "w");
  init(*world.store, "askew", kElements - 1);
  Tensor a(0), b(1);
  Values host(kElements, 4);
  a.fill(1);
  b.fill(2);
  must(pushpull(*world.store, {"w", "w", "w"}, {a.array(), on_host(host), b.array()},
                {a.array(), on_host(host), b.array()}));
  CHECK(a.read() == Values(kElements, 7));
  CHECK(b.read() == Values(kElements, 7));
  CHECK(host == Values(kElements, 7));
  must(pushpull(*world.store, {"askew", "askew"}, {a.array(1), b.array(1)},
                {a.array(1), b.array(1)}));
  auto expected = Values(kElements, 14);
  expected[0] = 7;
  CHECK(a.read() == expected);
  CHECK(b.read() == expected);
}

TEST_CASE("GPUs of one process: an error of NCCL in the middle ends in a sentence",
          "[device-group]") {
  World world(2);
  init(*world.store, "w");
  Tensor a(0), b(1);
  a.fill(1);
  b.fill(2);
  emulated::nccl_troubles().breaks_under_way = 6;
  const auto failed =
      pushpull(*world.store, {"w", "w"}, {a.array(), b.array()}, {a.array(), b.array()});
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == kv::Code::kUnavailable);
  CHECK_FALSE(failed.error().message.empty());
  // The next call succeeds.
  must(pushpull(*world.store, {"w", "w"}, {a.array(), b.array()}, {a.array(), b.array()}));
  CHECK(a.read() == Values(kElements, 3));
}

TEST_CASE("GPUs of one process: a device that is not there is named", "[device-group]") {
  World world(1);
  init(*world.store, "w");
  Tensor a(0);
  a.fill(1);
  auto elsewhere = a.array();
  elsewhere.place.device = 1;
  const auto failed =
      pushpull(*world.store, {"w", "w"}, {a.array(), elsewhere}, {a.array(), elsewhere});
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("device 1") != std::string::npos);
}

}  // namespace device_group_tests
