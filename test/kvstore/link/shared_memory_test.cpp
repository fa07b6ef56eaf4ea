#include "kvstore/link/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>

#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

std::shared_ptr<kv::SharedMemory> some_memory(std::size_t size = 10'000) {
  auto memory = kv::SharedMemory::create(size, true);
  REQUIRE(memory);
  return *memory;
}

/// This process's mappings of files in /dev/shm; other processes have files there, too.
std::vector<std::string> mapped_from_dev_shm() {
  std::vector<std::string> mapped;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/") != line.npos) mapped.push_back(line);
  return mapped;
}

/// This process's descriptors of shared memory.
std::vector<int> memory_descriptors() {
  std::vector<int> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ec;
    const auto target = std::filesystem::read_symlink(entry.path(), ec).string();
    if (!ec && target.starts_with("/memfd:dtkv")) all.push_back(std::stoi(entry.path().filename()));
  }
  return all;
}

std::span<float> floats(kv::Store& store, std::size_t n) {
  return {static_cast<float*>(must(store.allocate(n * sizeof(float)))), n};
}
/// For the workers' threads, where Catch's macros may not be used.
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}
kv::Array array_in(std::span<float> values) {
  return {values.data(), values.size(), data::Dtype::kFloat32};
}

}  // namespace

TEST_CASE("shared memory: what one side writes the other sees", "[shm]") {
  const auto mine = some_memory();
  const auto theirs = kv::SharedMemory::open(mine->describe(3));
  REQUIRE(theirs);
  CHECK((*theirs)->bytes().data() != mine->bytes().data());
  CHECK((*theirs)->bytes().size() == mine->bytes().size());
  mine->bytes()[9'999] = std::byte{7};
  CHECK((*theirs)->bytes()[9'999] == std::byte{7});
  (*theirs)->bytes()[0] = std::byte{8};
  CHECK(mine->bytes()[0] == std::byte{8});
  CHECK(mine->holds(mine->bytes().data() + 5, 100));
  CHECK_FALSE(mine->holds(mine->bytes().data() + 5, mine->bytes().size()));
  CHECK_FALSE(mine->holds(&mine, 1));
}

TEST_CASE("shared memory: what is not the memory spoken of is refused", "[shm]") {
  const auto mine = some_memory();
  const auto told = mine->describe(0);
  auto wrong_token = told;
  wrong_token.token[0] ^= 1;
  CHECK_FALSE(kv::SharedMemory::open(wrong_token));
  auto wrong_size = told;
  wrong_size.size *= 2;
  CHECK_FALSE(kv::SharedMemory::open(wrong_size));
  auto huge = told;
  huge.size = ~std::uint64_t{0} - 4095;
  CHECK_FALSE(kv::SharedMemory::open(huge));
  auto nobody = told;
  nobody.pid = 0x7fffffff;
  CHECK_FALSE(kv::SharedMemory::open(nobody));
  // A file that could still shrink would kill a process that maps it.
  const io::Fd unsealed(::memfd_create("dtkv", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(unsealed.get(), static_cast<off_t>(told.size + 4096)) == 0);
  auto other = told;
  other.fd = static_cast<std::uint32_t>(unsealed.get());
  CHECK_FALSE(kv::SharedMemory::open(other));
  // A file of another kind is not opened: this one would block forever.
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const io::Fd read_end(ends[0]);
  const io::Fd write_end(ends[1]);
  other.fd = static_cast<std::uint32_t>(ends[1]);
  CHECK_FALSE(kv::SharedMemory::open(other));
}

TEST_CASE("shared memory: it cannot shrink under a reader", "[shm]") {
  const auto mine = some_memory();
  const int fd = static_cast<int>(mine->describe(0).fd);
  CHECK(::ftruncate(fd, 0) == -1);
  CHECK(errno == EPERM);
}

TEST_CASE("shared memory: gradients and values in the store's memory, apart and in place",
          "[shm]") {
  constexpr std::size_t kElements = 5'000;  // two chunks, the second one cut
  Cluster cluster(2, 2);
  cluster.transport = kv::Transport::kSharedMemory;
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> zero(kElements, 0);
    init(store, "w", zero);
    const auto gradient = floats(store, kElements);
    const auto value = floats(store, kElements);
    std::vector<float> privately(kElements);
    for (std::uint64_t round = 1; round <= 6; ++round) {
      for (std::size_t i = 0; i < kElements; ++i)
        gradient[i] = static_cast<float>(round * (w + 1) + i);
      kv::PushOptions options;
      options.step = round;
      // In the store's memory, in place, and from it into memory of the caller's own.
      const kv::Array into = round % 3 == 0   ? array_in(value)
                             : round % 3 == 1 ? array_in(gradient)
                                              : array_of(privately);
      must(store.wait(must(store.pushpull({"w"}, {array_in(gradient)}, {into}, options)), 30));
      const auto* got = static_cast<const float*>(into.data);
      for (std::size_t i = 0; i < kElements; ++i)
        expect(got[i] == static_cast<float>(3 * round + 2 * i),
               fmt::format("round {}, element {}: {}", round, i, got[i]));
      must(store.barrier());
      must(store.wait(must(store.pull({"w"}, {array_in(value)}, {})), 30));
      expect(value[kElements - 1] == static_cast<float>(3 * round + 2 * (kElements - 1)), "pull");
      must(store.barrier());
    }
    must(store.release(gradient.data()));
    expect(!store.release(gradient.data()), "released twice");
    expect(!store.release(privately.data()), "released what was not allocated");
  });
}

TEST_CASE("shared memory: workers that share and workers that do not meet in one round", "[shm]") {
  constexpr std::size_t kElements = 3'000;
  Cluster cluster(1, 3);
  std::vector<std::unique_ptr<kv::Store>> stores;
  for (std::uint32_t w = 0; w < 3; ++w) {
    cluster.transport = w == 1 ? kv::Transport::kTcp : kv::Transport::kSharedMemory;
    stores.push_back(cluster.open(w));
  }
  std::vector<std::future<std::vector<float>>> all;
  for (std::uint32_t w = 0; w < 3; ++w)
    all.push_back(std::async(std::launch::async, [&, w] {
      auto& store = *stores[w];
      std::vector<float> zero(kElements, 0);
      init(store, "w", zero);
      must(store.set_optimizer("sgd"));
      std::vector<float> gradient(kElements, static_cast<float>(w + 1));
      std::vector<float> value(kElements);
      for (std::uint64_t step = 0; step < 3; ++step) {
        kv::PushOptions options;
        options.samples = w == 0 ? 2 : 1;  // (2*1 + 2 + 3) / 4 = 1.75
        options.step = step;
        options.learning_rate = 1;
        must(pushpull(store, "w", gradient, value, options));
      }
      return value;
    }));
  for (auto& one : all) {
    const auto value = one.get();
    CHECK(value.front() == -3 * 1.75f);
    CHECK(value.back() == -3 * 1.75f);
  }
}

TEST_CASE("shared memory: what a worker contributed counts when the worker is gone", "[shm]") {
  constexpr std::size_t kElements = 3'000;
  Cluster cluster(1, 2);
  cluster.transport = kv::Transport::kSharedMemory;
  auto stays = cluster.open(0);
  auto goes = cluster.open(1);
  std::vector<float> zero(kElements, 0);
  init(*stays, "w", zero);
  init(*goes, "w", zero);
  for (auto* store : {stays.get(), goes.get()}) init_everywhere(*store);
  {
    const auto gradient = floats(*goes, kElements);
    std::fill(gradient.begin(), gradient.end(), 5.0f);
    const auto handle = must(goes->push({"w"}, {array_in(gradient)}, {}));
    said_to_all(*goes);
    CHECK_FALSE(goes->wait(handle, 0.1));  // it waits for the other worker
  }
  goes.reset();  // its memory with it
  std::vector<float> ones(kElements, 1);
  std::vector<float> value(kElements);
  must(pushpull(*stays, "w", ones, value, {}));
  CHECK(value.front() == 6);
  CHECK(value.back() == 6);
}

TEST_CASE("shared memory: nothing has a name in /dev/shm", "[shm]") {
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> values(10'000, 1);
  init(*store, "w", values);
  must(pushpull(*store, "w", values, values, {}));
  CHECK_FALSE(memory_descriptors().empty());
  CHECK(mapped_from_dev_shm().empty());
}

TEST_CASE("shared memory: what an operation under way uses is not released", "[shm]") {
  constexpr std::size_t kElements = 3'000;
  Cluster cluster(1, 2);
  cluster.transport = GENERATE(kv::Transport::kSharedMemory, kv::Transport::kTcp);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto early = cluster.open(0);
  auto late = cluster.open(1);
  std::vector<float> zero(kElements, 0);
  init(*early, "w", zero);
  init(*late, "w", zero);
  const auto gradient = floats(*early, kElements);
  const auto value = floats(*early, kElements);
  std::fill(gradient.begin(), gradient.end(), 5.0f);
  const auto handle = must(early->pushpull({"w"}, {array_in(gradient)}, {array_in(value)}, {}));
  CHECK_FALSE(early->wait(handle, 0.2));  // it waits for the other worker
  for (const auto& memory : {gradient, value}) {
    const auto refused = early->release(memory.data());
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == kv::Code::kInvalid);
  }
  proxy.cut();  // unanswered requests are sent again, with the memory's number
  std::vector<float> ones(kElements, 1);
  must(pushpull(*late, "w", ones, ones, {}));
  must(early->wait(handle, 30));
  CHECK(value.front() == 6);
  CHECK(value.back() == 6);
  must(early->release(gradient.data()));
  must(early->release(value.data()));
}

TEST_CASE("shared memory: a server that maps it no more after a cut is an error", "[shm]") {
  constexpr std::size_t kElements = 3'000;
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kSharedMemory;
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0);
  std::vector<float> values(kElements, 0);
  init(*store, "w", values);
  must(pushpull(*store, "w", values, values, {}));
  // The descriptor that the server gets now refers to another file.
  const io::Fd other(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : memory_descriptors()) REQUIRE(::dup2(other.get(), fd) == fd);
  proxy.cut();
  const auto lost = pushpull(*store, "w", values, values, {});
  REQUIRE_FALSE(lost);
  CHECK(lost.error().code == kv::Code::kUnavailable);
  INFO(lost.error().message);
  CHECK(lost.error().message.find("memory") != std::string::npos);
}

TEST_CASE("shared memory: keys that come one by one share few memories", "[shm]") {
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<float> value(200);
  for (int key = 0; key < 2'000; ++key) {
    value.assign(value.size(), static_cast<float>(key));
    init(*store, "k" + std::to_string(key), value);
  }
  CHECK(memory_descriptors().size() < 12);
  for (const int key : {0, 1, 777, 1'999}) {
    std::vector<float> gradient(value.size(), static_cast<float>(key + 1));
    must(pushpull(*store, "k" + std::to_string(key), gradient, value, {}));
    CHECK(value == gradient);
  }
}

TEST_CASE("shared memory: a loop that is connected to later maps what there is", "[shm]") {
  constexpr std::size_t kElements = 250'000;
  Cluster cluster(1, 1, true, false, false, [](kv::ServerOptions& options) { options.loops = 3; });
  cluster.transport = kv::Transport::kSharedMemory;
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto store = cluster.open(0, "dist_sync", false, 1 << 20);
  const auto gradient = floats(*store, kElements);
  std::vector<float> value(kElements, 0);
  init(*store, "on loop 0", value);
  init(*store, "on loop 1", value);
  const auto sent = [&] {
    std::size_t bytes = 0;
    for (const auto& said : proxy.said()) bytes += said.size();
    return bytes;
  };
  const auto before = sent();
  std::fill(gradient.begin(), gradient.end(), 2.0F);
  must(store->wait(
      must(store->pushpull({"on loop 1"}, {array_in(gradient)}, {array_of(value)}, {})), 30));
  CHECK(value == std::vector<float>(kElements, 2));
  std::vector<float> own(kElements, 3);
  must(pushpull(*store, "on loop 1", own, value, {}));
  CHECK(value == own);
  CHECK(sent() < before + 10'000);
}

TEST_CASE("shared memory: an array that lies askew in it is staged", "[shm]") {
  constexpr std::size_t kElements = 1'500;
  Cluster cluster(1, 1);
  cluster.transport = kv::Transport::kSharedMemory;
  auto store = cluster.open(0);
  std::vector<double> values(kElements, 0);
  init(*store, "w", values);
  auto* memory = static_cast<std::byte*>(must(store->allocate((kElements + 1) * sizeof(double))));
  std::iota(values.begin(), values.end(), 0.5);
  std::memcpy(memory + 3, values.data(), kElements * sizeof(double));
  const kv::Array askew = {memory + 3, kElements, data::Dtype::kFloat64};
  must(store->wait(must(store->pushpull({"w"}, {askew}, {askew}, {})), 30));
  CHECK(std::memcmp(memory + 3, values.data(), kElements * sizeof(double)) == 0);
}
