// Servers that are lost while workers train, and others that take their place with a checkpoint.

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>

#include "kvstore/server/checkpoint/saved.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/kvstore/server/checkpoint/saved_folder.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace rollback {

namespace {

constexpr Epoch kSaved{2};
constexpr Epoch kLost{3};
constexpr Epoch kEnd{5};
constexpr std::uint64_t kSteps = 3;
constexpr std::size_t kCount = 20'001;
const std::vector<WorkerId> kBoth = {WorkerId(0), WorkerId(1)};

/// Two servers and the checkpoint of kSaved that they write.
struct Job {
  Folder folder;
  Reports reports;
  Cluster cluster;
  std::shared_ptr<const kv::Checkpoint> checkpoint;

  explicit Job(std::uint32_t workers)
      : cluster(2, workers, true, true, false, saving(folder, reports)) {
    cluster.save_at(kSaved);
  }
  void save() {
    if (!checkpoint) checkpoint = *kv::Checkpoint::open(seal(folder, reports.wait(2)));
  }
  void kill_servers() {
    save();
    cluster.kill_servers();
  }
  /// Others with the checkpoint.
  void replace() {
    save();
    cluster.replace_servers(
        kSaved, [this](kv::ServerOptions& options) { options.shard.restore = checkpoint; });
  }
};

bool is_rollback(const kv::Status& status) {
  return !status && status.error().code == kv::Code::kRollback;
}

/// A worker's program, as a user writes it.
struct Training {
  kv::Store& store;
  std::uint32_t worker;
  std::string optimizer = "adam";
  std::vector<float> weights = std::vector<float>(kCount, 0.5F);
  std::vector<float> statistics = std::vector<float>(3, 0.5F);
  /// Called before each step.
  std::function<void(Epoch, std::uint64_t step)> before = [](Epoch, std::uint64_t) {};
  std::vector<kv::View> rollbacks = {};

  void run() {
    init(store, "weights", weights);
    init(store, "statistics", statistics, data::kAuxiliary);
    must(store.set_optimizer(optimizer));
    for (Epoch epoch(0); epoch < kEnd;) {
      const auto view = must(store.epoch_boundary(epoch));
      epoch = view.epoch;
      if (view.rolled_back) rollbacks.push_back(view);
      const auto done = run_epoch(epoch);
      if (done)
        epoch = epoch.next();
      else if (!is_rollback(done))
        throw std::runtime_error(done.error().message);
    }
  }
  kv::Status pull(const std::string& key, std::vector<float>& out) {
    const auto handle = store.pull({key}, {array_of(out)}, {});
    return handle ? store.wait(*handle, 30) : kv::Status(tl::unexpected(handle.error()));
  }
  kv::Status run_epoch(Epoch epoch) {
    if (auto done = pull("weights", weights); !done) return done;
    if (auto done = pull("statistics", statistics); !done) return done;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      before(epoch, step);
      std::vector<float> gradient(kCount);
      for (std::size_t i = 0; i < kCount; ++i)
        gradient[i] = std::sin(static_cast<float>(i + worker) + weights[i] * 3.0F);
      kv::PushOptions options;
      options.step = epoch.value * 100 + step;
      options.learning_rate = 0.1F;
      if (auto done = pushpull(store, "weights", gradient, weights, options); !done) return done;
      options.learning_rate = 0;
      for (float& s : statistics) s += weights[0];
      if (auto done = pushpull(store, "statistics", statistics, statistics, options); !done)
        return done;
    }
    return {};
  }
};

std::vector<float> undisturbed(const std::string& optimizer) {
  Job job(2);
  std::vector<float> got;
  job.cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    Training training{store, w, optimizer};
    training.run();
    if (w == 0) got = training.weights;
  });
  return got;
}

/// Worker 1 waits before kLost's second step, the first time, until go_on.
struct Standstill {
  std::promise<void> reached;
  std::promise<void> go_on;
  std::atomic<bool> is_over = false;

  void at(Epoch epoch, std::uint64_t step) {
    if (epoch != kLost || step != 1 || is_over.exchange(true)) return;
    reached.set_value();
    go_on.get_future().wait();
  }
};

/// Mappings of shared memory in this process.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:dtkv") != line.npos;
  return count;
}

}  // namespace

TEST_CASE(
    "rollback: servers lost in mid-round, and the rest goes bit by bit as if nothing had been",
    "[rollback]") {
  const std::string optimizer = GENERATE(as<std::string>(), "sgd momentum=0.9", "adam");
  const int losses = GENERATE(1, 2);
  CAPTURE(optimizer, losses);
  const auto want = undisturbed(optimizer);
  const std::size_t mapped = mappings();
  {
    Job job(2);
    std::vector<Standstill> standstills(static_cast<std::size_t>(losses));
    std::atomic<std::size_t> told = 0;
    std::vector<std::vector<float>> got(2);
    std::vector<std::vector<kv::View>> rollbacks(2);
    auto training = std::async(std::launch::async, [&] {
      job.cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
        Training t{store, w, optimizer};
        if (w == 1)
          t.before = [&](Epoch epoch, std::uint64_t step) {
            if (told < standstills.size()) standstills[told].at(epoch, step);
          };
        t.run();
        got[w] = t.weights;
        rollbacks[w] = t.rollbacks;
      });
    });
    for (auto& standstill : standstills) {
      standstill.reached.get_future().wait();
      REQUIRE(eventually([&] {
        return job.cluster.server().traffic().waiting == std::vector<WorkerId>{WorkerId(0)};
      }));
      job.kill_servers();
      job.replace();
      job.cluster.tell_servers(kBoth);
      ++told;
      standstill.go_on.set_value();
    }
    training.get();
    for (const auto& weights : got) CHECK(weights == want);
    for (const auto& all : rollbacks) {
      REQUIRE(all.size() == static_cast<std::size_t>(losses));
      for (const auto& view : all) {
        CHECK(view.epoch == kSaved);
        CHECK(view.num_workers == 2);
        CHECK_FALSE(view.changed);
      }
    }
  }
  CHECK(mappings() == mapped);
}

TEST_CASE("rollback: a worker that waits in the boundary goes back without coming out",
          "[rollback]") {
  const bool is_killed_again = GENERATE(false, true);
  CAPTURE(is_killed_again);
  Job job(2);
  Standstill standstill;
  std::atomic<int> boundaries = 0;
  std::vector<std::vector<float>> got(2);
  auto training = std::async(std::launch::async, [&] {
    job.cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
      Training t{store, w};
      if (w == 1) {
        t.before = [&](Epoch epoch, std::uint64_t step) { standstill.at(epoch, step); };
      } else {
        // It runs out of data in that epoch, after one step.
        t.before = [&](Epoch epoch, std::uint64_t step) {
          if (epoch != kLost || step != 1 || boundaries > 0) return;
          const auto view = must(store.epoch_boundary(epoch.next()));
          ++boundaries;
          if (!view.rolled_back || view.epoch != kSaved) throw std::runtime_error("not back");
          throw view;
        };
      }
      for (;;) {
        try {
          t.run();
          break;
        } catch (const kv::View& view) {
          for (Epoch epoch = view.epoch; epoch < kEnd; epoch = epoch.next()) {
            if (epoch != view.epoch) must(store.epoch_boundary(epoch));
            must(t.run_epoch(epoch));
          }
          break;
        }
      }
      got[w] = t.weights;
    });
  });
  standstill.reached.get_future().wait();
  REQUIRE(eventually([&] { return job.cluster.arrived() == 1; }));
  job.kill_servers();
  job.replace();
  job.cluster.tell_servers(kBoth);
  if (is_killed_again) {
    // One worker has arrived, the other one has no list yet; and again before any worker connects.
    REQUIRE(eventually([&] { return job.cluster.arrived() == 1; }));
    job.kill_servers();
    job.replace();
    job.kill_servers();
    job.cluster.tell_servers(kBoth);
    job.replace();
    job.cluster.tell_servers(kBoth);
  }
  CHECK(boundaries == 0);
  standstill.go_on.set_value();
  training.get();
  CHECK(got[0] == got[1]);
  CHECK(got[0] == undisturbed("adam"));
  CHECK(boundaries == 1);
}

TEST_CASE("rollback: whatever is under way ends once, and nothing else begins", "[rollback]") {
  Job job(2);
  auto one = job.cluster.open(0);
  auto other = job.cluster.open(1);
  const std::vector<kv::Store*> stores = {one.get(), other.get()};
  std::vector<std::future<void>> all;
  for (auto* store : stores)
    all.push_back(std::async(std::launch::async, [store] {
      std::vector<float> values(kCount, 1);
      for (const char* key : {"a", "b", "c"}) init(*store, key, values);
      for (Epoch epoch(0); epoch <= kSaved; epoch = epoch.next())
        must(store->epoch_boundary(epoch));
    }));
  for (auto& started : all) started.get();
  auto* const memory = static_cast<float*>(must(one->allocate(kCount * sizeof(float))));
  const kv::Array own{memory, kCount, data::Dtype::kFloat32};
  std::vector<float> values(kCount, 1);
  std::vector<std::vector<float>> out(3, std::vector<float>(kCount));
  std::vector<kv::Handle> handles;
  handles.push_back(must(one->push({"a"}, {own}, {})));
  handles.push_back(must(one->pushpull({"b"}, {array_of(values)}, {array_of(out[0])}, {})));
  handles.push_back(must(one->pull({"a"}, {array_of(out[1])}, {})));  // waits for its turn
  handles.push_back(must(one->pushpull({"b"}, {own}, {array_of(out[2])}, {})));
  CHECK_FALSE(one->wait(handles[0], 0.05));
  job.kill_servers();
  job.replace();
  job.cluster.tell_servers(kBoth);
  for (const auto handle : handles) {
    CHECK(is_rollback(one->wait(handle, 20)));
    CHECK(one->wait(handle, 20));  // it was waited for
  }
  CHECK(is_rollback(one->init({"d"}, {array_of(values)}, 0)));
  CHECK(one->push({"a"}, {own}, {}).error().code == kv::Code::kRollback);
  CHECK(one->pull({"a"}, {own}, {}).error().code == kv::Code::kRollback);
  CHECK(is_rollback(one->set_optimizer("sgd")));
  CHECK(is_rollback(one->barrier()));
  CHECK(is_rollback(one->finish_epoch()));
  void* const later = must(one->allocate(100));
  must(one->release(later));
  auto back = std::async(std::launch::async, [&] { return must(other->epoch_boundary(kLost)); });
  CHECK(must(one->epoch_boundary(Epoch(77))).epoch == kSaved);
  CHECK(back.get().rolled_back);
  // The same memory is used with the new servers; the checkpoint's keys need no init.
  std::fill(memory, memory + kCount, 3.0F);
  auto theirs = std::async(std::launch::async, [&] {
    std::vector<float> g(kCount, 4);
    must(pushpull(*other, "a", g, g, {}));
    return g;
  });
  must(one->wait(must(one->pushpull({"a"}, {own}, {own}, {})), 20));
  CHECK(theirs.get() == std::vector<float>(memory, memory + kCount));
  CHECK(memory[0] == 7);
  must(one->release(memory));
}

TEST_CASE("rollback: a server that was left writes no more into this worker's memory",
          "[rollback]") {
  Job job(2);
  auto one = job.cluster.open(0);
  auto other = job.cluster.open(1);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::future<void>> all;
    for (auto* store : {one.get(), other.get()})
      all.push_back(std::async(std::launch::async, [&, store] {
        std::vector<float> values(kCount, 1);
        if (i == 0) init(*store, "a", values);
        if (i == 0) init_everywhere(*store);
        if (i == 0) must(store->epoch_boundary(Epoch(0)));
        if (i == 0) must(store->epoch_boundary(Epoch(1)));
        must(store->epoch_boundary(i == 0 ? kSaved : kLost));
      }));
    for (auto& started : all) started.get();
    std::vector<float> ones(kCount, 1);
    std::vector<float> mine(kCount, -9);
    std::vector<float> theirs(kCount);
    const auto handle = must(one->pushpull({"a"}, {array_of(ones)}, {array_of(mine)}, {}));
    said_to_all(*one);
    job.replace();  // the old servers live
    job.cluster.tell_servers({WorkerId(0)});
    REQUIRE(is_rollback(one->wait(handle, 20)));
    std::fill(mine.begin(), mine.end(), -7.0F);
    must(pushpull(*other, "a", ones, theirs, {}));  // completes the old servers' round
    CHECK(theirs == std::vector<float>(kCount, 2));
    CHECK(mine == std::vector<float>(kCount, -7));
    job.cluster.tell_servers({WorkerId(1)});
  }
}

TEST_CASE("rollback: what is under way ends when the old servers can write there no more",
          "[rollback]") {
  Job job(2);
  job.cluster.transport = kv::Transport::kSharedMemory;
  auto other = job.cluster.open(1);
  std::vector<std::unique_ptr<Proxy>> proxies;
  for (std::size_t s = 0; s < 2; ++s) {
    proxies.push_back(std::make_unique<Proxy>(job.cluster.server(s).port()));
    job.cluster.redirect(s, proxies.back()->port());
  }
  std::mutex mutex;
  std::string why;
  job.cluster.change_worker = [&](kv::ClientOptions& options) {
    options.let_go_limit = 200ms;
    options.end_process = [&](const std::string& text) {
      std::lock_guard lock(mutex);
      why = text;
    };
  };
  auto one = job.cluster.open(0);
  std::vector<std::future<void>> all;
  for (auto* store : {one.get(), other.get()})
    all.push_back(std::async(std::launch::async, [store] {
      std::vector<float> values(kCount, 1);
      init(*store, "a", values);
      init_everywhere(*store);
      for (Epoch epoch(0); epoch <= kSaved; epoch = epoch.next())
        must(store->epoch_boundary(epoch));
    }));
  for (auto& started : all) started.get();
  auto* const mine = static_cast<float*>(must(one->allocate(kCount * sizeof(float))));
  std::vector<float> ones(kCount, 1);
  std::vector<float> theirs(kCount);
  const auto handle =
      must(one->pushpull({"a"}, {array_of(ones)}, {{mine, kCount, data::Dtype::kFloat32}}, {}));
  said_to_all(*one);
  for (auto& proxy : proxies) proxy->hold(true);  // they do not learn that the workers left
  job.replace();
  job.cluster.tell_servers({WorkerId(0)});
  CHECK_FALSE(is_rollback(one->wait(handle, 0.3)));
  must(pushpull(*other, "a", ones, theirs, {}));
  CHECK(std::vector<float>(mine, mine + kCount) == theirs);  // the server still writes it
  // A server that never releases it: this process could not reuse its memory, and would end.
  CHECK(eventually([&] {
    std::lock_guard lock(mutex);
    return why.find("worker 0: server 0 at 127.0.0.1") == 0 &&
           why.find("still has this worker's memory open") != std::string::npos;
  }));
  for (auto& proxy : proxies) proxy->hold(false);
  CHECK(is_rollback(one->wait(handle, 20)));
  job.cluster.tell_servers({WorkerId(1)});
}

TEST_CASE("rollback: memory that was allocated is shared with the new servers as well",
          "[rollback]") {
  Job job(1);
  job.cluster.transport = kv::Transport::kSharedMemory;
  auto store = job.cluster.open(0);
  std::vector<float> values(kCount, 1);
  init(*store, "a", values);
  for (Epoch epoch(0); epoch <= kSaved; epoch = epoch.next()) must(store->epoch_boundary(epoch));
  must(store->allocate(kCount * sizeof(float)));
  const std::size_t mapped = mappings();
  job.kill_servers();
  CHECK(mappings() < mapped);
  job.replace();
  job.cluster.tell_servers({WorkerId(0)});
  CHECK(must(store->epoch_boundary(kLost)).rolled_back);
  CHECK(mappings() == mapped);
}

TEST_CASE("rollback: what compression had kept back is gone", "[rollback]") {
  Job job(1);
  job.cluster.transport = kv::Transport::kTcp;  // over shared memory nothing is compressed
  auto store = job.cluster.open(0);
  std::vector<float> values(kCount, 0);
  init(*store, "a", values);
  for (Epoch epoch(0); epoch <= kSaved; epoch = epoch.next()) must(store->epoch_boundary(epoch));
  must(store->set_gradient_compression("2bit threshold=0.5"));
  std::vector<float> g(kCount, 0.3F);
  must(pushpull(*store, "a", g, values, {}));
  CHECK(values == std::vector<float>(kCount, 0));
  job.kill_servers();
  job.replace();
  job.cluster.tell_servers({WorkerId(0)});
  CHECK(must(store->epoch_boundary(kLost)).rolled_back);
  must(pushpull(*store, "a", g, values, {}));
  CHECK(values == std::vector<float>(kCount, 0));
  must(pushpull(*store, "a", g, values, {}));
  CHECK(values == std::vector<float>(kCount, 0.5F));
}

TEST_CASE("rollback: a newcomer that warms up uses whatever servers there are", "[rollback]") {
  Job job(1);
  auto member = job.cluster.open(0);
  std::vector<float> values(kCount, 4);
  init(*member, "a", values);
  must(member->set_optimizer("sgd"));
  for (Epoch epoch(0); epoch <= kSaved; epoch = epoch.next()) must(member->epoch_boundary(epoch));
  auto newcomer = job.cluster.open(7, "dist_sync", true);
  std::vector<float> got(kCount, -1);
  init(*newcomer, "a", got);
  const std::vector<WorkerId> all = {WorkerId(0), WorkerId(7)};
  const auto lose = [&] {
    job.kill_servers();
    job.replace();
    job.cluster.tell_servers(all);
  };
  lose();
  must(newcomer->set_optimizer("sgd"));
  lose();
  // Only an operation under way may end for it; the next one is for the new servers.
  const auto pulls = [&] {
    return newcomer->wait(must(newcomer->pull({"a"}, {array_of(got)}, {})), 20);
  };
  const auto pulled = pulls();
  CHECK((pulled || is_rollback(pulled)));
  must(pulls());
  CHECK(got == values);
  lose();
  init(*newcomer, "a", got);
  job.cluster.plan(all);
  lose();
  auto joins =
      std::async(std::launch::async, [&] { return must(newcomer->epoch_boundary(Epoch(0))); });
  REQUIRE(eventually([&] { return job.cluster.arrived() == 1; }));
  const auto view = must(member->epoch_boundary(kLost));
  CHECK(view.rolled_back);
  CHECK(view.epoch == kSaved);
  CHECK(view.num_workers == 2);
  CHECK(joins.get().epoch == kSaved);
}

}  // namespace rollback
