// Servers that save a checkpoint while workers train on, and others that begin with it.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/fd.h"
#include "kvstore/server/checkpoint/saved.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/server/checkpoint/saved_folder.h"
#include "test/kvstore/server/shard_bench.h"
#include "test/support/catch.h"
#include "test/support/emulated_device/emulated_device.h"

namespace fs = std::filesystem;
using namespace dt;
using namespace dt::test;

namespace restore {

namespace {

constexpr Epoch kSaved{2};
constexpr Epoch kEnd{4};
constexpr int kSteps = 3;
constexpr std::size_t kCount = 5001;

/// A training that depends on every bit of weights and optimizer state. Gives the last weights.
std::vector<float> train(kv::Store& store, std::uint32_t worker, const std::string& optimizer,
                         float initial) {
  std::vector<float> weights(kCount, initial);
  std::vector<float> statistics(3, initial);
  std::vector<float> none;
  std::vector<double> scratch(2000, initial);
  init(store, "weights \xff", weights);
  init(store, "scratch", scratch, data::kAuxiliary | data::kTransient);
  init(store, "statistics", statistics, data::kAuxiliary);
  init(store, "none", none);
  must(store.set_optimizer(optimizer));
  for (Epoch epoch(0); epoch < kEnd; epoch = epoch.next()) {
    epoch = must(store.epoch_boundary(epoch)).epoch;
    pull(store, "weights \xff", weights);
    pull(store, "statistics", statistics);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<float> gradient(kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        gradient[i] = std::sin(static_cast<float>(i + worker) + weights[i] * 3.0F);
      kv::PushOptions options;
      options.step = epoch.value * 100 + static_cast<std::uint64_t>(step);
      options.learning_rate = 0.1F;
      must(pushpull(store, "weights \xff", gradient, weights, options));
      options.learning_rate = 0;
      for (float& s : statistics) s += weights[0];
      must(pushpull(store, "statistics", statistics, statistics, options));
      std::fill(scratch.begin(), scratch.end(), worker);
      must(pushpull(store, "scratch", scratch, scratch, options));
    }
  }
  weights.insert(weights.end(), statistics.begin(), statistics.end());
  return weights;
}

std::vector<float> train_all(Cluster& cluster, std::uint32_t workers, const std::string& optimizer,
                             float initial) {
  std::vector<std::vector<float>> got(workers);
  cluster.run(workers, [&](kv::Store& store, std::uint32_t w) {
    got[w] = train(store, w, optimizer, initial);
  });
  for (const auto& one : got) REQUIRE(one == got[0]);
  return got[0];
}

}  // namespace

TEST_CASE("what begins with a checkpoint goes on bit by bit as if nothing had been", "[restore]") {
  const std::string optimizer =
      GENERATE(as<std::string>(), "sgd momentum=0.9", "adam", "sgd weight_decay=0.01");
  const std::uint32_t servers = GENERATE(1u, 2u, 3u);
  const std::uint32_t loops = GENERATE(1u, 3u);
  CAPTURE(optimizer, servers, loops);
  const Folder folder;
  Reports reports;
  Cluster first(2, 2, true, true, false, saving(folder, reports));
  first.save_at(kSaved);
  const auto undisturbed = train_all(first, 2, optimizer, 0.5F);
  const std::string path = seal(folder, reports.wait(2));

  auto checkpoint = kv::Checkpoint::open(path);
  if (!checkpoint) FAIL(checkpoint.error().message);
  CHECK((*checkpoint)->manifest().step == 102);  // epoch 1, step 2
  std::vector<std::string> saved;
  for (const auto& key : (*checkpoint)->keys()) saved.push_back(key.name);
  CHECK(saved == std::vector<std::string>{"weights \xff", "statistics", "none"});
  Cluster second(servers, 2, true, true, false, [&](kv::ServerOptions& options) {
    options.loops = loops;
    options.shard.restore = *checkpoint;
  });
  second.begin_with(kSaved);
  // Initial values that no worker may get.
  CHECK(train_all(second, 2, optimizer, -77.0F) == undisturbed);
}

TEST_CASE("a chunk is read elsewhere: nobody waits for it but those who asked", "[restore]") {
  const Folder folder;
  Reports reports;
  Cluster first(1, 1, true, true, false, saving(folder, reports));
  first.save_at(kSaved);
  train_all(first, 1, "sgd momentum=0.9", 0.5F);
  auto options = ShardBench::options();
  options.restore = kv::Checkpoint::open(seal(folder, reports.wait(1))).value();
  std::vector<std::function<std::function<void()>()>> reading;
  options.offload = [&](auto work) { reading.push_back(std::move(work)); };
  ShardBench bench(options);
  bench.commit(1, {0, 1, 2});
  const auto ask = [&](std::uint32_t worker) {
    data::Header header;
    header.type = data::Type::kInit;
    header.worker = WorkerId(worker);
    header.samples = kCount;
    bench.say(header);
  };
  for (std::uint32_t w = 0; w < 3; ++w) ask(w);
  ask(1);  // again
  CHECK(reading.size() == 1);
  CHECK(bench.take().empty());
  CHECK(bench.commit(2, {0, 1}) == kv::Members::Applied::kYes);
  bench.shard_.disconnect(WorkerId(2));
  const auto there = reading.at(0)();
  CHECK(bench.take().empty());
  there();
  const auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  for (const auto& answer : answers) CHECK(answer.header.type == data::Type::kDone);
  CHECK(bench.value() != 0);
  ask(2);
  CHECK(bench.take().size() == 1);
  CHECK(reading.size() == 1);
}

TEST_CASE("servers of any ids save and begin by their index", "[restore]") {
  const Folder folder;
  Reports reports;
  const auto number = [](std::uint32_t first) {
    return [first](kv::ServerOptions& options) { options.id = ServerId(*options.index + first); };
  };
  const auto save = saving(folder, reports);
  Cluster first(2, 1, true, true, false, [&](kv::ServerOptions& options) {
    save(options);
    number(5)(options);
  });
  first.save_at(kSaved);
  const auto undisturbed = train_all(first, 1, "adam", 0.5F);
  const auto checkpoint = *kv::Checkpoint::open(seal(folder, reports.wait(2)));
  Cluster second(2, 1, true, true, false, [&](kv::ServerOptions& options) {
    options.shard.restore = checkpoint;
    number(7)(options);
  });
  second.begin_with(kSaved);
  CHECK(train_all(second, 1, "adam", -77.0F) == undisturbed);
}

TEST_CASE("another optimizer, shape or dtype than the checkpoint's is refused", "[restore]") {
  const Folder folder;
  Reports reports;
  Cluster first(1, 1, true, true, false, saving(folder, reports));
  first.save_at(kSaved);
  train_all(first, 1, "adam", 0.5F);
  const auto checkpoint = *kv::Checkpoint::open(seal(folder, reports.wait(1)));
  Cluster second(1, 1, true, true, false,
                 [&](kv::ServerOptions& options) { options.shard.restore = checkpoint; });
  const auto store = second.open(0);
  std::vector<float> values(7);
  CHECK(store->init({"statistics"}, {array_of(values)}, 0).error().code == kv::Code::kMismatch);
  std::vector<double> doubles(3);
  CHECK(store->init({"statistics"}, {array_of(doubles)}, 1).error().code == kv::Code::kMismatch);
  CHECK(store->set_optimizer("sgd").error().code == kv::Code::kMismatch);
  must(store->set_optimizer("adam"));
  // A key that is not in it is one like any other.
  std::vector<float> fresh(3, 9);
  init(*store, "fresh", fresh);
  std::vector<float> back(3);
  pull(*store, "fresh", back);
  CHECK(back == fresh);
}

TEST_CASE("a damaged array is found when it is wanted, and said by name", "[restore]") {
  const Folder folder;
  Reports reports;
  Cluster first(1, 1, true, true, false, saving(folder, reports));
  first.save_at(kSaved);
  train_all(first, 1, "sgd momentum=0.9", 0.5F);
  const std::string path = seal(folder, reports.wait(1));
  {
    std::fstream file(path + "/server-0.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(-100, std::ios::end);
    file.put('\x55');
  }
  const auto checkpoint = *kv::Checkpoint::open(path);
  Cluster second(1, 1, true, true, false,
                 [&](kv::ServerOptions& options) { options.shard.restore = checkpoint; });
  const auto store = second.open(0);
  std::vector<float> weights(kCount);
  std::vector<float> statistics(3);
  auto first_key = store->init({"weights \xff"}, {array_of(weights)}, 0);
  auto second_key = store->init({"statistics"}, {array_of(statistics)}, 1);
  const auto& failed = first_key ? second_key : first_key;
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("is damaged (its checksum differs)") != std::string::npos);

  // If the server handles the damage, a request for the array is not answered.
  std::vector<std::string> told;
  kv::ShardOptions options = ShardBench::options();
  options.restore = checkpoint;
  options.on_damage = [&told](std::string why) { told.push_back(std::move(why)); };
  ShardBench bench(std::move(options));
  bench.commit(1, {0});
  for (std::uint32_t key = 0; key < 2; ++key) {
    data::Header header;
    header.type = data::Type::kInit;
    header.worker = WorkerId(0);
    header.key = KeyId(key);
    header.dtype = checkpoint->keys()[key].dtype;
    header.samples = checkpoint->keys()[key].count;
    bench.say(header);
  }
  REQUIRE(told.size() == 1);
  CHECK(told[0].find("is damaged (its checksum differs)") != std::string::npos);
  CHECK(bench.take().size() == 1);
}

TEST_CASE("a volume that stalls delays no step, and its failure is told", "[restore]") {
  const Folder folder;
  Reports reports;
  Cluster cluster(1, 2, true, true, false, saving(folder, reports));
  cluster.save_at(kSaved);
  // Opening it for writing blocks until a process reads.
  const auto partial = folder.path / io::partial_name(kSaved, Generation(2));
  fs::create_directories(partial);
  const std::string path = (partial / io::checkpoint_file(0)).string();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  train_all(cluster, 2, "adam", 0.5F);
  CHECK(fs::is_fifo(path));
  // A second one meanwhile is refused at once, not queued.
  ServerCommit again;
  again.generation = again.checkpoint.emplace(Generation(9));
  again.epoch = Epoch(3);
  again.contributors = {WorkerId(0)};
  cluster.server().commit(again, {});
  CHECK(reports.wait(1).at(0).why == "an earlier one is still being written");
  const io::Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
  REQUIRE(eventually([&] { return reports.wait(1).at(0).generation == Generation(2); }));
  CHECK(reports.wait(1).at(0).why.find("write " + path) == 0);
}

TEST_CASE("a device without room for a second copy trains on while a checkpoint is written",
          "[restore]") {
  std::size_t used = 0;
  const auto trained = [&used](bool saves, std::size_t limit) {
    emulated::limit_device_memory(limit);
    const Folder folder;
    Reports reports;
    const auto save = saving(folder, reports);
    Cluster cluster(1, 2, true, false, false, [&](kv::ServerOptions& options) {
      save(options);
      options.device = 0;
    });
    if (saves) cluster.save_at(kSaved);
    // Opening it for writing blocks until a process reads: the checkpoint is kept until then.
    const auto partial = folder.path / io::partial_name(kSaved, Generation(2));
    fs::create_directories(partial);
    const std::string path = (partial / io::checkpoint_file(0)).string();
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const auto weights = train_all(cluster, 2, "adam", 0.5F);
    used = emulated::alive().device_bytes;
    const io::Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK));
    if (saves) CHECK(reports.wait(1).at(0).generation == Generation(2));
    return weights;
  };
  constexpr std::size_t kAny = std::size_t{1} << 40;
  const auto want = trained(false, kAny);
  const std::size_t least = used;
  CHECK(trained(true, kAny) == want);
  REQUIRE(used > least);
  CHECK(trained(true, (least + used) / 2) == want);
  emulated::limit_device_memory(kAny);
}

TEST_CASE("what was saved stays as it was while rounds go on", "[restore]") {
  for (const char* optimizer : {"", "sgd momentum=0.9", "adam"}) {
    CAPTURE(optimizer);
    ShardBench bench(true);
    bench.commit(1, {0});
    if (*optimizer) bench.set_optimizer(0, optimizer);
    bench.init(0, 1.0F);
    bench.push(0, 1, 0.25F);
    ServerCommit commit;
    commit.generation = Generation(2);
    commit.contributors = {WorkerId(0)};
    kv::SavedLoop saved;
    REQUIRE(bench.shard_.commit(commit, Time{}, &saved) == kv::Members::Applied::kYes);
    REQUIRE(saved.chunks.size() == 1);
    const auto bytes = [](const std::shared_ptr<const kv::Payload>& payload) {
      return payload ? std::string(payload->text()) : std::string();
    };
    const auto& chunk = saved.chunks[0];
    const std::vector<std::string> before = {bytes(chunk.arrays[0]), bytes(chunk.arrays[1]),
                                             bytes(chunk.arrays[2])};
    for (std::uint64_t round = 2; round < 5; ++round) bench.push(0, round, 3.0F, 2);
    CHECK(before == std::vector<std::string>{bytes(chunk.arrays[0]), bytes(chunk.arrays[1]),
                                             bytes(chunk.arrays[2])});
    CHECK(before[0] != std::string(ShardBench::bytes({bench.value()}).text()));
    CHECK(chunk.updates == (*optimizer ? 1 : 0));
  }
}

TEST_CASE("a contribution held for the commit comes after what it saves", "[restore]") {
  ShardBench bench(true);
  bench.commit(1, {0});
  bench.init(0, 1.0F);
  bench.push(0, 1, 5.0F);
  bench.push(0, 2, 7.0F, 2);  // of the generation to come
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  kv::SavedLoop saved;
  REQUIRE(bench.shard_.commit(commit, Time{}, &saved) == kv::Members::Applied::kYes);
  CHECK(ShardBench::floats(std::string(saved.chunks.at(0).arrays[0]->text())) ==
        std::vector<float>(kElements, 5.0F));
  CHECK(bench.value() == 7.0F);
}

}  // namespace restore
