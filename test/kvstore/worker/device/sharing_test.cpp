// Workers' device memory at servers that compute on a device of the same host: gradients are summed
// and values written in place, on emulated devices, whose memory is poisoned when it is freed and
// has another address for each process that opens it.

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <future>
#include <numeric>
#include <set>

#include "io/fd.h"
#include "kvstore/link/shared_memory.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/worker/device/device_tensors.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

void compute_on_device(kv::ServerOptions& options) { options.device = 0; }

/// Captures stderr during its lifetime.
class Stderr {
 public:
  Stderr() : before_(::dup(2)), file_(::memfd_create("stderr", MFD_CLOEXEC)) {
    REQUIRE(::dup2(file_.get(), 2) == 2);
  }
  ~Stderr() { ::dup2(before_.get(), 2); }
  Stderr(const Stderr&) = delete;
  Stderr& operator=(const Stderr&) = delete;
  [[nodiscard]] std::vector<std::string> lines_with(const std::string& words) const {
    std::string all(static_cast<std::size_t>(::lseek(file_.get(), 0, SEEK_END)), '\0');
    all.resize(static_cast<std::size_t>(
        std::max<ssize_t>(0, ::pread(file_.get(), all.data(), all.size(), 0))));
    std::vector<std::string> found;
    for (std::size_t at = 0; at < all.size();) {
      const auto end = std::min(all.find('\n', at), all.size());
      const auto line = all.substr(at, end - at);
      if (line.find(words) != line.npos) found.push_back(line);
      at = end + 1;
    }
    return found;
  }

 private:
  io::Fd before_;
  io::Fd file_;
};

struct Job {
  std::string type;
  std::string optimizer;  ///< Empty: no optimizer.
  std::uint32_t workers = 2;
  std::string codec = "none";
  bool refuse_nonfinite = false;
};

struct Trained {
  std::vector<std::vector<float>> values;  ///< Worker 0's.
  std::uint64_t in_place = 0;              ///< At all servers.
  std::size_t opened = 0;
};

/// Arrays of 1, 1, 5, 13 and no chunks.
const std::vector<std::size_t> kSizes = {1, 1000, 5001, 12345, 0};
constexpr std::uint64_t kChunks = 20;
constexpr std::uint64_t kRounds = 3;

Trained train(const Job& job, bool is_deterministic = true) {
  Trained result;
  {
    Cluster cluster(2, job.workers, true, is_deterministic, job.refuse_nonfinite,
                    compute_on_device);
    cluster.transport = kv::Transport::kSharedMemory;
    const auto body = [&](kv::Store& store, std::uint32_t w) {
      const CallersStream stream;
      std::vector<std::string> keys;
      std::vector<std::unique_ptr<Tensor>> tensors;
      std::vector<std::unique_ptr<Tensor>> slopes;
      std::vector<kv::Array> first;
      for (const std::size_t n : kSizes) {
        keys.push_back("key" + std::to_string(n));
        tensors.push_back(std::make_unique<Tensor>(n, stream.get()));
        slopes.push_back(std::make_unique<Tensor>(n, stream.get()));
        tensors.back()->put(gradient_of(n, 7, n));
        first.push_back(tensors.back()->array());
      }
      must(store.init(keys, first, 0));
      if (!job.optimizer.empty()) must(store.set_optimizer(job.optimizer));
      must(store.set_gradient_compression(job.codec));
      (void)must(store.epoch_boundary(Epoch(0)));
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        std::vector<kv::Handle> handles;
        for (std::size_t k = 0; k < keys.size(); ++k) {
          kv::PushOptions options;
          options.learning_rate = 0.1F;
          options.step = round;
          options.samples = 1 + w + round;
          options.priority = static_cast<int>(k % 3);
          slopes[k]->put(gradient_of(kSizes[k], w, round));
          const auto value = slopes[k]->array();
          const auto out = tensors[k]->array();
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
      if (w == 0)
        for (const auto& tensor : tensors) result.values.push_back(tensor->get());
    };
    cluster.run(job.workers, body, job.type);
    for (std::size_t s = 0; s < 2; ++s) result.in_place += cluster.server(s).counters().in_place;
    CHECK(emulated::alive().foreign_memories == 0);
  }
  result.opened = emulated::done().opened;
  return result;
}

/// Some workers, one server on a device, behind a wire; the workers' first calls are over.
struct Few {
  static constexpr std::size_t kElements = 5000;
  static constexpr std::uint64_t kParts = 5;  ///< Number of its chunks.

  Cluster cluster;
  Proxy proxy{cluster.server().port()};
  std::vector<std::unique_ptr<Proxy>> later;  ///< To servers that took the first one's place.
  std::vector<std::unique_ptr<kv::Store>> stores;

  explicit Few(std::uint32_t workers, bool is_deterministic = false)
      : cluster(1, workers, true, is_deterministic, false, compute_on_device) {
    cluster.transport = kv::Transport::kSharedMemory;
    cluster.redirect(0, proxy.port());
    std::vector<float> start(kElements, 1.0F);
    for (std::uint32_t w = 0; w < workers; ++w) {
      stores.push_back(cluster.open(w));
      init(*stores[w], "w", start);
      init_everywhere(*stores[w]);
    }
    const CallersStream stream;
    const Tensor out(kElements, stream.get());
    for (auto& store : stores) must(store->wait(must(store->pull({"w"}, {out.array()}, {})), 30));
    CHECK(emulated::alive().foreign_memories == 2 * workers);  // for two loops
  }
  [[nodiscard]] std::uint64_t in_place() { return cluster.server().counters().in_place; }
};

}  // namespace

TEST_CASE("device sharing: the bits of pinned places, and no bus between", "[device][ipc]") {
  const Fresh machine;
  const auto job = GENERATE(
      Job{"dist_device_sync", "sgd momentum=0.9", 2}, Job{"dist_device_sync", "adamw", 2},
      Job{"dist_device_sync", "", 3}, Job{"dist_sync", "sgd momentum=0.9", 2, "2bit threshold=0.5"},
      Job{"dist_sync", "", 2, "none", true}, Job{"dist_async", "", 1}, Job{"dist_async", "sgd", 1});
  CAPTURE(job.type, job.optimizer, job.codec, job.workers);
  emulated::refuse_foreign("no peer access");
  const auto pinned = train(job);
  CHECK(pinned.in_place == 0);
  CHECK(pinned.opened == 0);
  emulated::refuse_foreign(nullptr);
  const auto straight = train(job);
  CHECK(straight.values == pinned.values);
  CHECK(straight.in_place == kChunks * kRounds * job.workers);
  CHECK(straight.opened > 0);
}

TEST_CASE("device sharing: contributions in the order they come", "[device][ipc]") {
  const Fresh machine;
  const Job job{"dist_device_sync", "sgd momentum=0.9", 2};  // the order of two does not matter
  emulated::refuse_foreign("no peer access");
  const auto pinned = train(job, false);
  emulated::refuse_foreign(nullptr);
  const auto straight = train(job, false);
  CHECK(straight.values == pinned.values);
  CHECK(straight.in_place == kChunks * kRounds * job.workers);
}

TEST_CASE("device sharing: who cannot open it is told once, and reads the host's memory",
          "[device][ipc]") {
  const Fresh machine;
  Stderr said;
  SECTION("a server that may not") {
    emulated::refuse_foreign("peer access is not supported between these two devices");
    CHECK(train({"dist_sync", "", 1}).in_place == 0);
    const auto lines = said.lines_with("by way of the host's memory");
    REQUIRE(lines.size() == 2);  // two servers
    CHECK(lines[0].find("worker 0: server 0 reads CUDA device 0 by way of the host's memory: CUDA "
                        "device 0 does not open it: peer access is not supported") !=
          std::string::npos);
    CHECK(emulated::done().opened == 0);
  }
  SECTION("a device without room") {
    emulated::limit_device_memory(std::size_t{1} << 20);
    CHECK(train({"dist_sync", "", 1}).in_place == 0);
    CHECK(said.lines_with("out of memory").size() == 1);
  }
}

TEST_CASE("device sharing: a server that computes on its host is not asked", "[device][ipc]") {
  const Fresh machine;
  const Stderr said;
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> start(5000, 1.0F);
  init(*store, "w", start);
  const CallersStream stream;
  Tensor gradient(5000, stream.get());
  gradient.put(std::vector<float>(5000, 2.0F));
  const auto pushed =
      must(store->pushpull({"w"}, {gradient.array()}, {gradient.array()}, kv::PushOptions()));
  must(store->wait(pushed, 30));
  CHECK(gradient.get() == std::vector<float>(5000, 2.0F));
  CHECK(said.lines_with("host's memory").empty());
}

TEST_CASE("device sharing: a device that the caller does not use gets no context",
          "[device][ipc]") {
  const Fresh machine(3);
  const auto server = GENERATE(std::optional<int>(), std::optional<int>(1));
  const auto transport = GENERATE(kv::Transport::kSharedMemory, kv::Transport::kTcp);
  CAPTURE(server.has_value(), static_cast<int>(transport));
  // Device 1 is the arrays' and the server's. The caller's thread, as a fresh one, has 0.
  kv::cuda::UniqueStream stream;
  kv::cuda::DeviceMemory memory;
  std::thread([&] {
    must(kv::cuda::use_device(1));
    must(stream.create());
    must(memory.allocate(5000 * sizeof(float)));
  }).join();
  auto* const values = static_cast<float*>(memory.data());
  std::fill_n(values, 5000, 1.0F);
  Cluster cluster(1, 1, true, false, false, [&](auto& options) { options.device = server; });
  cluster.transport = transport;
  cluster.run(1, [&](kv::Store& store, std::uint32_t) {
    const kv::Array array{
        values, 5000, data::Dtype::kFloat32, {kv::cuda::Place::Kind::kDevice, 1}, stream.get()};
    std::vector<float> start(5000, 1.0F);  // no device's: the first push meets the fresh thread
    must(store.init({"w"}, {array_of(start)}, 0));
    (void)must(store.epoch_boundary(Epoch(0)));
    for (int round = 0; round < 2; ++round)
      must(store.wait(must(store.pushpull({"w"}, {array}, {array}, kv::PushOptions())), 30));
    must(store.finish_epoch());
  });
  CHECK(emulated::contexts() == std::set<int>{1});
}

TEST_CASE("device sharing: integers, and ends on two devices, go through the host's memory",
          "[device][ipc]") {
  const Fresh machine(2);
  constexpr std::size_t kElements = 5000;
  Cluster cluster(1, 1, true, false, false, compute_on_device);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  const CallersStream stream;
  const auto in_place = [&] { return cluster.server().counters().in_place; };
  const auto pushpull_of = [&](const std::string& key, const kv::Array& in, const kv::Array& out) {
    must(store->wait(must(store->pushpull({key}, {in}, {out}, kv::PushOptions())), 30));
  };
  SECTION("int64") {
    std::vector<std::int64_t> numbers(kElements);
    std::iota(numbers.begin(), numbers.end(), 1);
    must(store->init({"n"}, {{numbers.data(), kElements, data::Dtype::kInt64}}, 0));
    Tensor tensor(kElements * 2, stream.get());
    tensor.put(numbers);
    auto array = tensor.array();
    array.dtype = data::Dtype::kInt64;
    array.count = kElements;
    pushpull_of("n", array, array);
    CHECK(tensor.get<std::int64_t>() == numbers);
    CHECK(in_place() == 0);
  }
  SECTION("float64") {
    std::vector<double> numbers(kElements, 1.0 / 3);
    init(*store, "n", numbers);
    Tensor tensor(kElements * 2, stream.get());
    tensor.put(numbers);
    auto array = tensor.array();
    array.dtype = data::Dtype::kFloat64;
    array.count = kElements;
    pushpull_of("n", array, array);
    CHECK(tensor.get<double>() == numbers);
    CHECK(in_place() == 10);
  }
  SECTION("one end on the host") {
    std::vector<float> values(kElements, 1.0F);
    init(*store, "w", values);
    Tensor tensor(kElements, stream.get());
    tensor.put(std::vector<float>(kElements, 3.0F));
    pushpull_of("w", tensor.array(), array_of(values));
    CHECK(values == std::vector<float>(kElements, 3.0F));
    CHECK(in_place() == 5);
    std::fill(values.begin(), values.end(), 4.0F);
    pushpull_of("w", array_of(values), tensor.array());
    CHECK(tensor.get() == std::vector<float>(kElements, 4.0F));
    CHECK(in_place() == 5);
  }
  SECTION("two devices") {
    std::vector<float> values(kElements, 1.0F);
    init(*store, "w", values);
    const int first = GENERATE(0, 1);  // the server's, or another that it reaches
    Tensor here(kElements, stream.get(), first);
    Tensor there(kElements, stream.get(), 1 - first);
    here.put(std::vector<float>(kElements, 3.0F));
    pushpull_of("w", here.array(), here.array());
    CHECK(in_place() == 5);
    pushpull_of("w", here.array(), there.array());
    CHECK(there.get() == std::vector<float>(kElements, 3.0F));
    there.put(std::vector<float>(kElements, 5.0F));
    pushpull_of("w", there.array(), here.array());
    CHECK(here.get() == std::vector<float>(kElements, 5.0F));
    CHECK(in_place() == 5);
    pushpull_of("w", there.array(), there.array());
    CHECK(in_place() == 10);
    pushpull_of("w", here.array(), here.array());
    CHECK(here.get() == std::vector<float>(kElements, 5.0F));
    CHECK(in_place() == 15);
  }
}

TEST_CASE("device sharing: arrays that go one after the other need the memory of one",
          "[device][ipc]") {
  const Fresh machine;
  constexpr std::size_t kElements = std::size_t{1} << 20;  // as much as the least memory
  Cluster cluster(1, 1, true, false, false, compute_on_device);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> values(kElements, 1.0F);
  const CallersStream stream;
  Tensor tensor(kElements, stream.get());
  tensor.put(values);
  std::set<std::size_t> memories;
  for (int key = 0; key < 4; ++key) {
    const std::string name = std::to_string(key);
    init(*store, name, values);
    must(store->wait(must(store->pushpull({name}, {tensor.array()}, {tensor.array()}, {})), 30));
    memories.insert(emulated::alive().foreign_memories);
  }
  CHECK(memories.size() == 1);
  CHECK(tensor.get() == values);
}

TEST_CASE("device sharing: memory that no exchange used for an epoch is freed, once it is closed",
          "[device][ipc]") {
  const Fresh machine;
  Cluster cluster(1, 1, true, false, false, compute_on_device);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> values(5000, 1.0F);
  init(*store, "w", values);
  const CallersStream stream;
  Tensor tensor(5000, stream.get());
  (void)must(store->epoch_boundary(Epoch(0)));
  std::uint32_t epoch = 0;
  for (float round = 1; round < 3; ++round) {
    tensor.put(std::vector<float>(5000, round));
    must(store->wait(must(store->pushpull({"w"}, {tensor.array()}, {tensor.array()}, {})), 30));
    values.assign(5000, round);
    must(pushpull(*store, "w", values, values, {}));  // the server pins the host's staging
    const auto used = emulated::alive();
    CHECK(used.foreign_memories > 0);
    CHECK(used.registrations > 0);
    for (int idle = 0; idle < 3; ++idle) (void)must(store->epoch_boundary(Epoch(++epoch)));
    CHECK(emulated::alive().foreign_memories == 0);
    CHECK(emulated::alive().device_memories == used.device_memories - 1);
    CHECK(emulated::alive().registrations == 0);
    CHECK(values == std::vector<float>(5000, round));
    CHECK(tensor.get() == std::vector<float>(5000, round));
  }
  CHECK(emulated::done().freed_while_open == 0);
}

TEST_CASE("device sharing: what a cut connection had is sent again", "[device][ipc]") {
  const Fresh machine;
  Few few(1);
  auto& store = *few.stores[0];
  const CallersStream stream;
  Tensor gradient(Few::kElements, stream.get());
  Tensor out(Few::kElements, stream.get());
  for (float round = 1; round < 5; ++round) {
    const bool loses_answers = round > 2;  // then the place has the value already
    if (loses_answers)
      few.proxy.hold_answers(true);
    else
      few.proxy.hold(true);
    gradient.put(std::vector<float>(Few::kElements, round));
    const auto pushed =
        must(store.pushpull({"w"}, {gradient.array()}, {out.array()}, kv::PushOptions()));
    CHECK(says(store.wait(pushed, 0.1), kv::Code::kTimeout, "not done"));
    few.proxy.cut();
    few.proxy.hold(false);
    few.proxy.hold_answers(false);
    must(store.wait(pushed, 30));
    CHECK(out.get() == std::vector<float>(Few::kElements, round));
  }
  CHECK(few.in_place() == 4 * Few::kParts);
  CHECK(emulated::alive().foreign_memories == 2);
}

TEST_CASE("device sharing: what a worker contributed counts when the worker is gone",
          "[device][ipc]") {
  const Fresh machine;
  Few few(3, GENERATE(false, true));
  const CallersStream stream;
  {
    Tensor gradient(Few::kElements, stream.get());
    gradient.put(std::vector<float>(Few::kElements, 5.0F));
    const auto pushed = few.stores[2]->pushpull({"w"}, {gradient.array()}, {gradient.array()}, {});
    said_to_all(*few.stores[2]);
    CHECK_FALSE(few.stores[2]->wait(must(pushed), 0.1));  // it waits for the others
  }
  const auto memories = emulated::alive();
  few.stores[2].reset();  // and its memory, once the servers have released it
  CHECK(emulated::alive().foreign_memories == memories.foreign_memories - 2);
  CHECK(emulated::done().freed_while_open == 0);
  Tensor ones(Few::kElements, stream.get());
  ones.put(std::vector<float>(Few::kElements, 1.0F));
  std::vector<kv::Handle> handles;
  for (std::size_t w = 0; w < 2; ++w)
    handles.push_back(must(few.stores[w]->pushpull({"w"}, {ones.array()}, {ones.array()}, {})));
  for (std::size_t w = 0; w < 2; ++w) must(few.stores[w]->wait(handles[w], 30));
  CHECK(ones.get() == std::vector<float>(Few::kElements, 7.0F));
}

TEST_CASE("device sharing: no room for what a lost worker contributed ends the round alone",
          "[device][ipc]") {
  const Fresh machine;
  Few few(2);
  const CallersStream stream;
  {
    Tensor gradient(Few::kElements, stream.get());
    gradient.put(std::vector<float>(Few::kElements, 5.0F));
    (void)must(few.stores[1]->push({"w"}, {gradient.array()}, {}));
    said_to_all(*few.stores[1]);
  }
  Tensor ones(Few::kElements, stream.get());
  ones.put(std::vector<float>(Few::kElements, 1.0F));
  emulated::limit_device_memory(1);
  few.stores[1].reset();
  const auto pushed = few.stores[0]->pushpull({"w"}, {ones.array()}, {ones.array()}, {});
  CHECK(says(few.stores[0]->wait(must(pushed), 30), kv::Code::kMismatch, "out of memory"));
  emulated::limit_device_memory(std::size_t{1} << 30);
  few.cluster.shrink({WorkerId(0)});
  const auto again = few.stores[0]->pushpull({"w"}, {ones.array()}, {ones.array()}, {});
  must(few.stores[0]->wait(must(again), 30));
  CHECK(ones.get() == std::vector<float>(Few::kElements, 1.0F));
}

TEST_CASE("device sharing: values and infinite gradients are as in the host's memory",
          "[device][ipc]") {
  const Fresh machine;
  Cluster cluster(1, 1, true, false, true, compute_on_device);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> values(5000, 1.0F);
  init(*store, "w", values);
  const CallersStream stream;
  Tensor tensor(5000, stream.get());
  values[4321] = std::numeric_limits<float>::infinity();
  tensor.put(values);
  auto pushed = store->pushpull({"w"}, {tensor.array()}, {tensor.array()}, {});
  CHECK(says(store->wait(must(pushed), 30), kv::Code::kNonfinite, "1 of 904 elements of chunk 4"));
  CHECK(cluster.server().counters().nonfinite == 1);
  values[4321] = 2;
  tensor.put(values);
  pushed = store->pushpull({"w"}, {tensor.array()}, {tensor.array()}, {});
  must(store->wait(must(pushed), 30));
  tensor.put(std::vector<float>(5000, 0.0F));
  must(store->wait(must(store->pull({"w"}, {tensor.array()}, {})), 30));
  CHECK(tensor.get() == values);
}

TEST_CASE("device sharing: after a rollback the new servers read the same memory",
          "[device][ipc]") {
  const Fresh machine;
  const bool are_killed = GENERATE(false, true);
  Few few(1);
  auto& store = *few.stores[0];
  const CallersStream stream;
  Tensor gradient(Few::kElements, stream.get());
  Tensor out(Few::kElements, stream.get());
  gradient.put(std::vector<float>(Few::kElements, 2.0F));
  (void)must(store.epoch_boundary(Epoch(0)));
  const auto before = emulated::alive();
  Proxy* proxy = &few.proxy;
  for (std::uint32_t epoch = 1; epoch < 4; ++epoch) {
    proxy->hold_answers(true);
    const auto begun = must(store.pushpull({"w"}, {gradient.array()}, {out.array()}, {}));
    CHECK(says(store.wait(begun, 0.1), kv::Code::kTimeout, "not done"));
    if (are_killed) few.cluster.kill_servers();
    if (are_killed) proxy->cut();
    few.cluster.replace_servers(Epoch(epoch), compute_on_device);
    few.later.push_back(std::make_unique<Proxy>(few.cluster.server().port()));
    few.cluster.redirect(0, few.later.back()->port());
    few.cluster.tell_servers({WorkerId(0)});
    std::exchange(proxy, few.later.back().get())->hold_answers(false);
    CHECK(must(store.epoch_boundary(Epoch(epoch))).rolled_back);
    CHECK(says(store.wait(begun, 30), kv::Code::kRollback, "a server was lost"));
    CHECK(emulated::alive().foreign_memories == 0);
    must(store.init({"w"}, {gradient.array()}, 0));  // these servers have no checkpoint
    must(store.wait(must(store.pushpull({"w"}, {gradient.array()}, {out.array()}, {})), 30));
    CHECK(out.get() == std::vector<float>(Few::kElements, 2.0F));
    CHECK(few.in_place() == Few::kParts);
    CHECK(emulated::alive().foreign_memories == before.foreign_memories);
  }
}

TEST_CASE("device sharing: what the caller's stream still writes is not read", "[device][ipc]") {
  const Fresh machine;
  Few few(1);
  CallersStream stream;
  Tensor gradient(Few::kElements, stream.get());
  const Tensor out(Few::kElements, stream.get());
  stream.close();
  must(kv::cuda::fill(gradient.array().data, 0, Few::kElements * sizeof(float), stream.get()));
  const auto pushed = must(few.stores[0]->pushpull({"w"}, {gradient.array()}, {out.array()}, {}));
  CHECK(says(few.stores[0]->wait(pushed, 0.1), kv::Code::kTimeout, "not done"));
  stream.open();
  must(few.stores[0]->wait_in_stream(pushed, 30));
  CHECK(out.get() == std::vector<float>(Few::kElements, 0.0F));
  must(few.stores[0]->wait(pushed, 30));
}

TEST_CASE("device sharing: a server whose device breaks answers nothing", "[device][ipc]") {
  const Fresh machine;
  {
    std::promise<std::string> lost;
    std::atomic<bool> is_told = false;
    Cluster cluster(1, 1, true, false, false, [&](kv::ServerOptions& options) {
      options.device = 0;
      options.shard.on_device_lost = [&](const std::string& why) {
        if (!is_told.exchange(true)) lost.set_value(why);
      };
    });
    cluster.transport = kv::Transport::kSharedMemory;
    auto store = cluster.open(0);
    std::vector<float> start(5000, 1.0F);
    init(*store, "w", start);
    CallersStream stream;
    Tensor tensor(5000, stream.get());
    tensor.put(start);
    must(store->wait(must(store->push({"w"}, {tensor.array()}, {})), 30));
    must(kv::cuda::wait(stream.get()));
    const auto pushed = must(store->push({"w"}, {array_of(start)}, {}));
    must(store->wait(pushed, 30));
    emulated::break_devices("an illegal memory access was encountered");
    const auto never = must(store->push({"w"}, {array_of(start)}, {}));
    CHECK(says(store->wait(never, 0.2), kv::Code::kTimeout, "not done"));
    CHECK(lost.get_future().get().find("illegal memory access") != std::string::npos);
  }
  emulated::break_devices(nullptr);
}

// In its own process, since memory abandoned to the end of the process is never freed.
TEST_CASE("device sharing: memory that a server may still have open is not freed",
          "[.][abandoned]") {
  emulated::restart();
  Few few(2);
  const CallersStream stream;
  Tensor gradient(Few::kElements, stream.get());
  gradient.put(std::vector<float>(Few::kElements, 5.0F));
  (void)must(few.stores[1]->push({"w"}, {gradient.array()}, {}));
  said_to_all(*few.stores[1]);
  few.proxy.hold(true);  // the server does not see the end
  const auto before = emulated::alive();
  few.stores[1].reset();
  CHECK(emulated::alive().device_memories == before.device_memories);
  CHECK(emulated::alive().foreign_memories == before.foreign_memories);
  few.proxy.hold(false);
  CHECK(eventually(
      [&] { return emulated::alive().foreign_memories == before.foreign_memories - 2; }));
  gradient.put(std::vector<float>(Few::kElements, 1.0F));
  const auto pushed = few.stores[0]->pushpull({"w"}, {gradient.array()}, {gradient.array()}, {});
  must(few.stores[0]->wait(must(pushed), 30));
  CHECK(gradient.get() == std::vector<float>(Few::kElements, 6.0F));
  CHECK(emulated::done().freed_while_open == 0);
}
