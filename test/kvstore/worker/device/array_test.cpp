// Arrays on devices through a worker's store, on emulated devices, whose streams do all work as
// late as is allowed.

#include <algorithm>
#include <atomic>
#include <future>

#include "kvstore/api/half_store.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/worker/device/device_tensors.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

namespace {

struct Case {
  kv::Transport transport;
  std::string type;
  std::string codec;
  std::uint32_t workers;
};

/// Chunks are of 1024 elements.
const std::vector<std::size_t> kCounts = {1, 1000, 5001, 12345, 0};

/// Worker 0's values after some rounds of pushpulls, with arrays on the device or the host.
std::vector<std::vector<float>> trained(const Case& the, bool on_device) {
  Cluster cluster(2, the.workers, true, true);
  cluster.transport = the.transport;
  std::vector<std::vector<float>> result;
  const auto body = [&](kv::Store& store, std::uint32_t w) {
    const CallersStream stream;
    std::vector<std::string> keys;
    std::vector<std::vector<float>> weights;
    std::vector<std::vector<float>> gradients;
    std::vector<std::unique_ptr<Tensor>> tensors;
    std::vector<std::unique_ptr<Tensor>> slopes;
    std::vector<kv::Array> first;
    for (const std::size_t n : kCounts) {
      keys.push_back("key" + std::to_string(n));
      weights.push_back(gradient_of(n, 7, n));
      gradients.emplace_back(n);
    }
    for (std::size_t k = 0; k < kCounts.size(); ++k) {
      tensors.push_back(std::make_unique<Tensor>(kCounts[k], stream.get()));
      slopes.push_back(std::make_unique<Tensor>(kCounts[k], stream.get()));
      tensors.back()->put(weights[k]);
      first.push_back(on_device ? tensors[k]->array() : array_of(weights[k]));
    }
    must(store.init(keys, first, 0));
    must(store.set_optimizer("sgd momentum=0.9"));
    must(store.set_gradient_compression(the.codec));
    (void)must(store.epoch_boundary(Epoch(0)));
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<kv::Handle> handles;
      for (std::size_t k = 0; k < keys.size(); ++k) {
        gradients[k] = gradient_of(kCounts[k], w, round);
        kv::PushOptions options;
        options.learning_rate = 0.1F;
        options.step = round;
        options.priority = static_cast<int>(k % 3);
        if (on_device) slopes[k]->put(gradients[k]);
        const auto value = on_device ? slopes[k]->array() : array_of(gradients[k]);
        const auto out = on_device ? tensors[k]->array() : array_of(weights[k]);
        if (k % 2 == 0) {
          handles.push_back(must(store.pushpull({keys[k]}, {value}, {out}, options)));
        } else {
          handles.push_back(must(store.push({keys[k]}, {value}, options)));
          handles.push_back(must(store.pull({keys[k]}, {out}, {})));
        }
      }
      for (const auto handle : handles) must(store.wait(handle, 30));
    }
    must(store.finish_epoch());
    if (w != 0) return;
    for (std::size_t k = 0; k < keys.size(); ++k)
      result.push_back(on_device ? tensors[k]->get() : weights[k]);
  };
  cluster.run(the.workers, body, the.type);
  return result;
}

/// One worker, one server behind a wire.
struct OneWorker {
  Cluster cluster{1, 1};
  Proxy proxy{cluster.server().port()};
  std::unique_ptr<kv::Store> store;
  std::vector<float> start = std::vector<float>(5000, 1.0F);

  explicit OneWorker(kv::Transport transport) {
    cluster.transport = transport;
    cluster.redirect(0, proxy.port());
    store = cluster.open(0);
    init(*store, "w", start);
    (void)must(store->epoch_boundary(Epoch(0)));
  }
  /// A whole exchange of zeros. The first call with arrays on a device adds memory and waits until
  /// the servers have mapped it.
  void exchange(Tensor& gradient, Tensor& out) const {
    gradient.put(std::vector<float>(5000, 0.0F));
    must(store->wait(must(store->pushpull({"w"}, {gradient.array()}, {out.array()}, {})), 30));
  }
};

kv::Transport any_transport() {
  return GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
}

}  // namespace

TEST_CASE("device arrays: those of 16 bits go through host memory as float32", "[device]") {
  constexpr std::size_t kCount = 3000;
  const Fresh machine;
  Cluster cluster(1, 1);
  kv::HalfStore store(cluster.open(0));
  const CallersStream stream;
  Tensor weights(kCount / 2, stream.get());
  Tensor gradient(kCount / 2, stream.get());
  const auto bfloat16 = [](const Tensor& tensor) {
    kv::Array array = tensor.array();
    array.count = kCount;
    array.dtype = data::Dtype::kBfloat16;
    return array;
  };
  const auto of = [](std::uint16_t bits) { return std::vector<std::uint16_t>(kCount, bits); };
  weights.put(of(0x4000));  // 2
  must(store.init({"w"}, {bfloat16(weights)}, 0));
  must(store.set_optimizer("sgd"));
  gradient.put(of(0x4080));  // 4
  kv::PushOptions options;
  options.learning_rate = 0.125F;
  const auto handle =
      must(store.pushpull({"w"}, {bfloat16(gradient)}, {bfloat16(weights)}, options));
  must(store.wait_in_stream(handle, 30));
  CHECK(weights.get<std::uint16_t>() == of(0x3fc0));  // 1.5
  must(store.wait(handle, 30));
}

TEST_CASE("device arrays: the bits of host arrays", "[device]") {
  const Fresh machine;
  const auto the =
      GENERATE(Case{kv::Transport::kTcp, "dist_sync", "none", 2},
               Case{kv::Transport::kSharedMemory, "dist_sync", "none", 2},
               Case{kv::Transport::kTcp, "dist_device_sync", "2bit threshold=0.5", 2},
               Case{kv::Transport::kSharedMemory, "dist_device_sync", "2bit threshold=0.5", 2},
               Case{kv::Transport::kTcp, "dist_sync", "fp16", 2},
               Case{kv::Transport::kTcp, "dist_async", "none", 1},
               Case{kv::Transport::kSharedMemory, "dist_async", "none", 1});
  CAPTURE(the.type, the.codec, static_cast<int>(the.transport));
  const auto expected = trained(the, false);
  CHECK(emulated::done().copies > 0);
  CHECK(trained(the, true) == expected);
}

TEST_CASE(
    "device arrays: what the stream does before a push is seen, and the value by what it does "
    "after",
    "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  Tensor out(5000, stream.get());
  for (float round = 1; round < 4; ++round) {
    gradient.put(std::vector<float>(5000, round));
    const auto pushed =
        must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
    must(one.store->wait_in_stream(pushed, 30));
    CHECK(out.get() == std::vector<float>(5000, round));
    must(one.store->wait(pushed, 30));
    must(one.store->wait_in_stream(pushed, 30));  // nothing any more
  }
}

TEST_CASE("device arrays: no wait in the stream ends before the last copy is on a stream",
          "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  Tensor out(5000, stream.get());
  gradient.put(std::vector<float>(5000, 3.0F));
  out.put(std::vector<float>(5000, -1.0F));
  must(kv::cuda::wait(stream.get()));
  // The loop stops before it puts the last chunk's copy on its stream.
  const auto* begin = static_cast<const std::byte*>(out.array().data);
  std::atomic<int> copies = 0;
  std::promise<void> is_there;
  std::promise<void> has_returned;
  auto returned = has_returned.get_future();
  emulated::before_copies([&](const void* to) {
    const auto* at = static_cast<const std::byte*>(to);
    if (at < begin || at >= begin + 20'000 || ++copies != 5) return;
    is_there.set_value();
    // Long enough for a call that does not wait for the copy; one that waits continues after it.
    (void)returned.wait_for(200ms);
  });
  const auto pushed =
      must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
  REQUIRE(is_there.get_future().wait_for(30s) == std::future_status::ready);
  must(one.store->wait_in_stream(pushed, 30));
  has_returned.set_value();
  emulated::before_copies(nullptr);
  const bool has_all = out.get() == std::vector<float>(5000, 3.0F);
  CHECK(has_all);
  must(one.store->wait(pushed, 30));
}

TEST_CASE("device arrays: an array that the stream still reads is written afterwards", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  CallersStream stream;
  const Tensor array(5000, stream.get());
  const bool is_pinned = GENERATE(false, true);
  stream.close();
  const auto out = is_pinned ? array.pinned() : array.array();
  const auto pulled = must(one.store->pull({"w"}, {out}, {}));
  CHECK(says(one.store->wait(pulled, 0.2), kv::Code::kTimeout, "not done"));
  std::uint32_t bits = 0;
  std::memcpy(&bits, out.data, sizeof bits);
  CHECK(bits == 0xffffffff);  // poison as before
  stream.open();
  must(one.store->wait(pulled, 30));
  CHECK(static_cast<float*>(out.data)[4999] == 1);
}

TEST_CASE("device arrays: pinned arrays are read when the stream has written them", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  CallersStream stream;
  Tensor from(5000, stream.get());
  const Tensor gradient(5000, stream.get());
  from.put(std::vector<float>(5000, 3.0F));
  must(kv::cuda::wait(stream.get()));
  stream.close();
  must(kv::cuda::copy(gradient.pinned().data, from.array().data, 20'000, stream.get()));
  std::vector<float> out(5000);
  const auto pushed =
      must(one.store->pushpull({"w"}, {gradient.pinned()}, {array_of(out)}, kv::PushOptions()));
  stream.open();
  must(one.store->wait(pushed, 30));
  CHECK(out == std::vector<float>(5000, 3.0F));
}

TEST_CASE("device arrays: what a cut connection had is sent again", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  const std::string codec = GENERATE("none", "bf16");
  must(one.store->set_gradient_compression(codec));
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  Tensor out(5000, stream.get());
  one.exchange(gradient, out);
  for (float round = 1; round < 4; ++round) {
    const bool loses_answers = round > 2;
    if (loses_answers)
      one.proxy.hold_answers(true);
    else
      one.proxy.hold(true);
    gradient.put(std::vector<float>(5000, round));
    const auto pushed =
        must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
    CHECK(says(one.store->wait(pushed, 0.1), kv::Code::kTimeout, "not done"));
    one.proxy.cut();
    one.proxy.hold(false);
    one.proxy.hold_answers(false);
    must(one.store->wait(pushed, 30));
    CHECK(out.get() == std::vector<float>(5000, round));
  }
}

TEST_CASE("device arrays: after a rollback no copy touches the caller's memory", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  CallersStream stream;
  Tensor gradient(5000, stream.get());
  Tensor out(5000, stream.get());
  gradient.put(std::vector<float>(5000, 2.0F));
  must(kv::cuda::wait(stream.get()));
  stream.close();
  const bool is_on_the_way_out = GENERATE(false, true);
  const auto begun =
      is_on_the_way_out
          ? must(one.store->pull({"w"}, {out.array()}, {}))
          : must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
  const auto behind =
      must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
  CHECK(says(one.store->wait(begun, 0.1), kv::Code::kTimeout, "not done"));
  one.cluster.kill_servers();
  one.proxy.cut();
  one.cluster.replace_servers(Epoch(0), {});
  one.cluster.tell_servers({WorkerId(0)});
  // The copies wait for the stream, the operations for the copies, and the boundary for all that.
  CHECK(says(one.store->wait(begun, 0.1), kv::Code::kTimeout, "not done"));
  auto boundary =
      std::async(std::launch::async, [&] { return one.store->epoch_boundary(Epoch(1)); });
  CHECK_FALSE(eventually([&] { return one.cluster.arrived() > 0; }, 200ms));
  stream.open();
  CHECK(must(boundary.get()).rolled_back);
  CHECK(says(one.store->wait(begun, 30), kv::Code::kRollback, "a server was lost"));
  CHECK(says(one.store->wait(behind, 30), kv::Code::kRollback, "a server was lost"));
  out.put(std::vector<float>(5000, 9.0F));
  CHECK(out.get() == std::vector<float>(5000, 9.0F));
  emulated::flush();
  CHECK(out.get() == std::vector<float>(5000, 9.0F));

  must(one.store->init({"w"}, {gradient.array()}, 0));  // these servers have no checkpoint
  must(one.store->wait(must(one.store->pull({"w"}, {out.array()}, {})), 30));
  CHECK(out.get() == std::vector<float>(5000, 2.0F));
}

TEST_CASE("device arrays: a broken device ends the operation, and the epoch goes on", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  {
    CallersStream stream;
    Tensor gradient(5000, stream.get());
    stream.close();
    const bool is_on_the_way_out = GENERATE(false, true);
    const auto begun = is_on_the_way_out
                           ? must(one.store->pull({"w"}, {gradient.array()}, {}))
                           : must(one.store->push({"w"}, {gradient.array()}, kv::PushOptions()));
    CHECK(says(one.store->wait(begun, 0.1), kv::Code::kTimeout, "not done"));
    emulated::break_devices("an illegal memory access was encountered");
    stream.open();
    CHECK(says(one.store->wait(begun, 30), kv::Code::kInternal,
               "key 'w': worker 0: CUDA device 0: an "
               "illegal memory access"));
    CHECK(says(status_of(one.store->push({"w"}, {gradient.array()}, kv::PushOptions())),
               kv::Code::kInternal, "an illegal memory access"));
  }
  emulated::break_devices(nullptr);
  std::vector<float> ones(5000, 1.0F);
  std::vector<float> out(5000);
  must(pushpull(*one.store, "w", ones, out, {}));
  CHECK(out == ones);
  CHECK(must(one.store->epoch_boundary(Epoch(1))).epoch == Epoch(1));
}

TEST_CASE("device arrays: a store ends while its copies are under way", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  Tensor out(5000, stream.get());
  one.exchange(gradient, out);
  gradient.put(std::vector<float>(5000, 1.0F));
  one.proxy.hold_answers(GENERATE(false, true));
  (void)must(one.store->pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
  one.store.reset();
  out.put(std::vector<float>(5000, 9.0F));
  emulated::flush();
  CHECK(out.get() == std::vector<float>(5000, 9.0F));
}

TEST_CASE("device arrays: memory of the store's stays while it goes to a device", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  CallersStream stream;
  Tensor out(5000, stream.get());
  auto* memory = static_cast<float*>(must(one.store->allocate(20'000)));
  std::fill_n(memory, 5000, 4.0F);
  const kv::Array gradient{memory, 5000, data::Dtype::kFloat32};
  stream.close();
  const auto begun = must(one.store->pushpull({"w"}, {gradient}, {out.array()}, kv::PushOptions()));
  CHECK(says(one.store->wait(begun, 0.1), kv::Code::kTimeout, "not done"));
  CHECK(says(one.store->release(memory), kv::Code::kInvalid, "under way"));
  stream.open();
  must(one.store->wait(begun, 30));
  must(one.store->release(memory));
  CHECK(out.get() == std::vector<float>(5000, 4.0F));
}

TEST_CASE("device arrays: no room for pinned memory is said, and nothing has begun", "[device]") {
  const Fresh machine;
  OneWorker one(any_transport());
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  gradient.put(std::vector<float>(5000, 5.0F));
  emulated::limit_pinned_memory(1);
  CHECK(says(status_of(one.store->push({"w"}, {gradient.array()}, kv::PushOptions())),
             kv::Code::kInternal, "pinned memory for arrays on devices: out of memory"));
  emulated::limit_pinned_memory(std::size_t{1} << 30);
  std::vector<float> out(5000);
  must(one.store->wait(
      must(one.store->pushpull({"w"}, {gradient.array()}, {array_of(out)}, kv::PushOptions())),
      30));
  CHECK(out == std::vector<float>(5000, 5.0F));
}

TEST_CASE("device arrays: where there is no device they are refused, not read", "[device]") {
  const Fresh machine(0);
  OneWorker one(any_transport());
  const auto local = kv::make_local_store("device");
  init(*local, "w", one.start);
  kv::Array array{reinterpret_cast<void*>(64),
                  5000,
                  data::Dtype::kFloat32,
                  {kv::cuda::Place::Kind::kDevice, 2}};
  const std::string why =
      "CUDA device 2, which cannot be used (no CUDA device on this machine): copy";
  for (kv::Store* store : {one.store.get(), local.get()}) {
    CHECK(says(store->init({"v"}, {array}, 0), kv::Code::kInvalid, why));
    CHECK(says(status_of(store->push({"w"}, {array}, {})), kv::Code::kInvalid, why));
    CHECK(says(status_of(store->pull({"w"}, {array}, {})), kv::Code::kInvalid, why));
    const auto pushed = store->pushpull({"w"}, {array_of(one.start)}, {array}, {});
    CHECK(says(status_of(pushed), kv::Code::kInvalid, why));
  }
}

TEST_CASE(
    "device arrays: in a local store the device has the values, computes, and is not waited for",
    "[device]") {
  const Fresh machine(2);
  constexpr std::size_t kCount = 5000;
  for (const std::string optimizer : {"", "sgd momentum=0.9 weight_decay=0.01", "adam"}) {
    INFO(optimizer);
    const auto on_host = kv::make_local_store("local");
    const auto store = kv::make_local_store("local");
    CallersStream stream;
    Tensor weights(kCount, stream.get());
    Tensor gradient(kCount, stream.get());
    std::vector<float> wanted = gradient_of(kCount, 0, 0);
    weights.put(wanted);
    if (!optimizer.empty())
      for (kv::Store* one : {on_host.get(), store.get()}) must(one->set_optimizer(optimizer));
    must(on_host->init({"w"}, {array_of(wanted)}, 0));
    must(store->init({"w"}, {weights.array()}, 0));
    CHECK(must(store->optimizer()) == must(on_host->optimizer()));
    kv::PushOptions options;
    for (options.step = 0; options.step < 4; ++options.step) {
      const bool is_waited_for = options.step == 3;
      options.learning_rate = 0.1F / static_cast<float>(1 + options.step);
      options.samples = 8 * options.step;  // 0: no step
      std::vector<float> slope = gradient_of(kCount, 1, options.step);
      must(on_host->wait(
          must(on_host->pushpull({"w"}, {array_of(slope)}, {array_of(wanted)}, options)), 0));
      gradient.put(slope);
      const float before = weights.now(0);
      std::vector<const void*> copied;
      emulated::before_copies([&](const void* to) { copied.push_back(to); });
      if (!is_waited_for) stream.close();
      const auto pushed =
          must(store->pushpull({"w"}, {gradient.array()}, {weights.array()}, options));
      must(is_waited_for ? store->wait(pushed, 0) : store->wait_in_stream(pushed, 0));
      emulated::before_copies({});
      CHECK((weights.now(0) == before) != is_waited_for);  // the gradient is not there yet
      if (options.samples > 0)                             // without any, zeros come from the host
        CHECK(std::ranges::count(copied, weights.array().data) ==
              static_cast<std::ptrdiff_t>(copied.size()));
      stream.open();
      CHECK(weights.get() == wanted);
    }
    // Whatever comes between goes through the host: another device, host arrays, other types.
    Tensor elsewhere(kCount, nullptr, 1);
    std::vector<float> pulled(kCount);
    std::int64_t three = 3;
    const kv::Array count{&three, 1, data::Dtype::kInt64};
    must(store->init({"n"}, {count}, data::kAuxiliary));
    (void)must(store->pushpull({"w", "n"}, {gradient.array(), count}, {elsewhere.array(), count},
                               options));
    CHECK(three == 3);
    (void)must(store->pull({"w"}, {array_of(pulled)}, {}));
    CHECK(elsewhere.get() == pulled);
    (void)must(store->pull({"w"}, {weights.array()}, {}));
    CHECK(weights.get() == pulled);
    CHECK(emulated::contexts() == std::set<int>{0, 1});
  }
}

TEST_CASE("device arrays: a local store tells when its device fails", "[device]") {
  const Fresh machine;
  const auto store = kv::make_local_store("local");
  const CallersStream stream;
  Tensor weights(100, stream.get());
  weights.put(std::vector<float>(100, 1.0F));
  must(store->init({"w"}, {weights.array()}, 0));
  emulated::break_devices("an illegal memory access was encountered");
  const auto pushed = store->pushpull({"w"}, {weights.array()}, {weights.array()}, {});
  const kv::Status ended = pushed ? store->wait(*pushed, 0) : status_of(pushed);
  CHECK(says(ended, kv::Code::kInternal, "an illegal memory access was encountered"));
  emulated::break_devices(nullptr);
}

TEST_CASE("device arrays: local and device have the values of host arrays", "[device]") {
  const Fresh machine;
  for (const char* type : {"local", "device"}) {
    const auto store = kv::make_local_store(type);
    const CallersStream stream;
    Tensor weights(100, stream.get());
    Tensor gradient(100, stream.get());
    weights.put(std::vector<float>(100, 1.0F));
    must(store->init({"w"}, {weights.array()}, 0));
    must(store->set_optimizer("sgd"));
    kv::PushOptions options;
    options.learning_rate = 0.5F;
    gradient.put(std::vector<float>(100, 1.0F));
    (void)must(store->pushpull({"w"}, {gradient.array()}, {weights.array()}, options));
    CHECK(weights.get() == std::vector<float>(100, 0.5F));
    gradient.put(std::vector<float>(100, 2.0F));
    (void)must(store->push({"w"}, {gradient.array()}, options));
    (void)must(store->pull({"w"}, {weights.array()}, {}));
    CHECK(weights.get() == std::vector<float>(100, -0.5F));
  }
}
