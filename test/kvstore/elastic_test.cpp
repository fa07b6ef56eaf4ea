#include <algorithm>
#include <future>

#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

void boundary(kv::Store& store, std::uint32_t epoch) { must(store.epoch_boundary(Epoch(epoch))); }

/// A round of ones from all workers; the sum is the number of contributors.
float count_in(kv::Store& store, const std::string& key = "w", std::size_t size = 3000) {
  std::vector<float> ones(size, 1);
  std::vector<float> sum(size);
  must(pushpull(store, key, ones, sum, {}));
  if (sum != std::vector<float>(size, sum[0])) throw std::runtime_error("a torn sum");
  return sum[0];
}

}  // namespace

TEST_CASE("epochs: a worker that runs out of data early hangs nobody", "[elastic]") {
  Cluster cluster(2, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(3000, 0);
    init(store, "w", values);
    for (std::uint32_t epoch = 0; epoch < 5; ++epoch) {
      boundary(store, epoch);
      const int rounds = w == 0 ? 2 : 5;
      for (int i = 0; i < rounds; ++i) {
        const float want = i < 2 ? 2 : 1;
        if (count_in(store) != want) throw std::runtime_error("a wrong number took part");
      }
    }
    must(store.finish_epoch());
  });
}

TEST_CASE("epochs: who has made its steps holds nobody's up, and shares what all have made of them",
          "[elastic]") {
  const std::string type = GENERATE("dist_sync", "dist_async");
  Cluster cluster(2, 3);
  cluster.run(
      3,
      [&](kv::Store& store, std::uint32_t w) {
        std::vector<float> values(3000, 0);
        std::vector<float> statistics(3000, 0);
        init(store, "w", values);
        init(store, "mean", statistics, data::kAuxiliary);
        for (std::uint32_t epoch = 0; epoch < 4; ++epoch) {
          boundary(store, epoch);
          const std::uint32_t rounds = 1 + 2 * w;
          for (std::uint32_t i = 0; i < rounds; ++i)
            must(store.wait(must(store.push({"w"}, {array_of(values)}, {})), 30));
          must(store.finish_steps());
          auto refused = store.push({"w"}, {array_of(values)}, {});
          if (refused || refused.error().code != kv::Code::kInvalid)
            throw std::runtime_error("a step after the last one");
          // Twice: statistics, and their use.
          for (int i = 0; i < 2; ++i) {
            std::vector<float> mine(3000, static_cast<float>(3 * w));
            must(pushpull(store, "mean", mine, statistics, {}));
            if (statistics != std::vector<float>(3000, 3.0F))
              throw std::runtime_error("somebody's are missing: " + std::to_string(statistics[0]));
          }
          if (epoch % 2 == 0) must(store.finish_epoch());
        }
      },
      type);
}

TEST_CASE("epochs: a death after the steps completes what the others share", "[elastic]") {
  Cluster cluster(1, 3);
  std::vector<std::unique_ptr<kv::Store>> stores;
  for (std::uint32_t w = 0; w < 3; ++w) stores.push_back(cluster.open(w));
  std::vector<std::future<float>> all;
  std::atomic<int> shared = 0;
  std::promise<void> dies;
  for (std::uint32_t w = 0; w < 3; ++w)
    all.push_back(std::async(std::launch::async, [&, w] {
      auto& store = *stores[w];
      std::vector<float> values(3000, 0);
      init(store, "w", values);
      init(store, "mean", values, data::kAuxiliary);
      boundary(store, 0);
      (void)count_in(store);
      must(store.finish_steps());
      if (w == 2) return 0.0F;
      std::vector<float> mine(3000, static_cast<float>(2 * w));
      const auto handle = must(store.pushpull({"mean"}, {array_of(mine)}, {array_of(values)}, {}));
      ++shared;
      must(store.wait(handle, 30));
      return values[0];
    }));
  CHECK(all[2].get() == 0);
  REQUIRE(eventually([&] { return shared == 2; }));
  CHECK(all[0].wait_for(50ms) == std::future_status::timeout);  // worker 2 may still contribute
  cluster.shrink({WorkerId(0), WorkerId(1)});
  CHECK(all[0].get() == 1);
  CHECK(all[1].get() == 1);
}

TEST_CASE("epochs: a repetition after the end is not answered with a later round's sum",
          "[elastic]") {
  const bool has_optimizer = GENERATE(false, true);
  Cluster cluster(1, 2);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  auto early = cluster.open(0);
  cluster.redirect(0, cluster.server().port());
  auto late = cluster.open(1);
  for (auto* store : {early.get(), late.get()}) {
    std::vector<float> values(3000, 0);
    init(*store, "w", values);
    if (has_optimizer) must(store->set_optimizer("sgd"));
  }
  auto starts = std::async(std::launch::async, [&] { boundary(*late, 0); });
  boundary(*early, 0);
  starts.get();
  kv::PushOptions options;
  options.learning_rate = 1;
  std::vector<float> ones(3000, 1);
  std::vector<float> got(3000, -9);
  const auto handle = must(early->pushpull({"w"}, {array_of(ones)}, {array_of(got)}, options));
  must(early->finish_epoch());
  proxy.hold_answers(true);
  std::vector<float> value(3000);
  for (const float gradient : {1.0f, 5.0f}) {  // the second round is the later one's alone
    std::vector<float> g(3000, gradient);
    must(pushpull(*late, "w", g, value, options));
  }
  proxy.cut();
  proxy.hold_answers(false);
  const auto answered = early->wait(handle, 30);
  if (has_optimizer) {
    must(answered);
    CHECK(got == std::vector<float>(3000, -6));  // the weights of now
  } else {
    REQUIRE_FALSE(answered);
    CHECK(answered.error().code == kv::Code::kInvalid);
    CHECK(answered.error().message.find("is gone") != std::string::npos);
  }
  auto ends = std::async(std::launch::async, [&] {
    boundary(*late, 1);
    return count_in(*late);
  });
  boundary(*early, 1);
  const float alone = count_in(*early);
  CHECK(alone == ends.get());
}

TEST_CASE("epochs: what was pushed last before the end still counts", "[elastic]") {
  // finish_epoch overtaking pushes that are queued behind a full window would lose them.
  Cluster cluster(1, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(2'000'000, 0);
    init(store, "w", values);
    boundary(store, 0);
    std::vector<float> ones(values.size(), 1);
    const auto handle = must(store.push({"w"}, {array_of(ones)}, {}));
    if (w == 1) must(store.wait(handle, 30));
    boundary(store, 1);
    must(store.wait(handle, 30));
    pull(store, "w", values);
    if (values != std::vector<float>(values.size(), 2)) throw std::runtime_error("a push was lost");
  });
}

TEST_CASE("join: a newcomer checks shapes, pulls, joins at the boundary, and momentum survives",
          "[elastic]") {
  Cluster cluster(2, 1);
  cluster.plan({WorkerId(0), WorkerId(7)});
  const std::string optimizer = "sgd momentum=0.5";
  std::promise<void> one_epoch_done;
  std::promise<void> newcomer_warm;
  auto member = std::async(std::launch::async, [&] {
    auto store = cluster.open(0);
    std::vector<float> values(3000, 10);
    init(*store, "w", values);
    must(store->set_optimizer(optimizer));
    boundary(*store, 0);
    std::vector<float> g(3000, 1);
    kv::PushOptions options;
    options.learning_rate = 1;
    must(pushpull(*store, "w", g, values, options));  // m = 1, w = 9
    one_epoch_done.set_value();
    newcomer_warm.get_future().wait();
    const auto view = must(store->epoch_boundary(Epoch(1)));
    if (view.num_workers != 2 || !view.changed) throw std::runtime_error("view");
    options.step = 1;
    must(pushpull(*store, "w", g, values, options));  // m = 1.5, w = 7.5
    return values;
  });
  one_epoch_done.get_future().wait();
  auto store = cluster.open(7, "dist_sync", true);
  CHECK(store->is_newcomer());
  std::vector<float> wrong(2999);
  const auto refused = store->init({"w"}, {array_of(wrong)}, 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == kv::Code::kMismatch);
  std::vector<float> values(3000, -1);
  init(*store, "w", values);
  must(store->set_optimizer(optimizer));
  const auto other = store->set_optimizer("sgd momentum=0.9");
  REQUIRE_FALSE(other);
  CHECK(other.error().code == kv::Code::kMismatch);
  must(store->barrier());  // at once
  pull(*store, "w", values);
  CHECK(values == std::vector<float>(3000, 9));
  const auto early = store->push({"w"}, {array_of(values)}, {});
  REQUIRE_FALSE(early);
  auto arrive =
      std::async(std::launch::async, [&] { return must(store->epoch_boundary(Epoch(0))); });
  REQUIRE(eventually([&] { return cluster.arrived() == 1; }));
  newcomer_warm.set_value();
  const auto view = arrive.get();
  CHECK(view.changed);
  CHECK(view.rank == Rank(1));
  CHECK(view.num_workers == 2);
  CHECK(view.epoch == Epoch(1));
  const auto own_count = store->epoch_boundary(Epoch(1));
  REQUIRE_FALSE(own_count);
  CHECK(own_count.error().message ==
        "epoch_boundary(1) in epoch 1: go on with view.epoch + 1, or use kv.epochs()");
  std::vector<float> g(3000, 1);
  kv::PushOptions options;
  options.learning_rate = 1;
  options.step = 1;
  must(pushpull(*store, "w", g, values, options));
  CHECK(values == std::vector<float>(3000, 7.5));
  CHECK(member.get() == values);
}

TEST_CASE("leave: a removed worker is told so, and its pushes are refused and change nothing",
          "[elastic]") {
  Cluster cluster(1, 2);
  std::promise<void> planned;
  auto planned_future = planned.get_future().share();
  std::promise<void> pushed_on;
  auto stays = std::async(std::launch::async, [&] {
    auto store = cluster.open(0);
    std::vector<float> values(100, 0);
    init(*store, "w", values);
    boundary(*store, 0);
    if (count_in(*store, "w", 100) != 2) throw std::runtime_error("not two");
    planned_future.wait();
    const auto view = must(store->epoch_boundary(Epoch(1)));
    if (view.num_workers != 1 || view.rank != Rank(0)) throw std::runtime_error("view");
    if (count_in(*store, "w", 100) != 1) throw std::runtime_error("not one");
    pushed_on.get_future().wait();
    pull(*store, "w", values);
    if (values[0] != 1) throw std::runtime_error("a fenced push changed the value");
  });
  auto store = cluster.open(1);
  std::vector<float> values(100, 0);
  init(*store, "w", values);
  boundary(*store, 0);
  CHECK(count_in(*store, "w", 100) == 2);
  cluster.plan({WorkerId(0)});
  planned.set_value();
  const auto left = store->epoch_boundary(Epoch(1));
  REQUIRE_FALSE(left);
  CHECK(left.error().code == kv::Code::kLeave);
  pushed_on.set_value();
  stays.get();
}

TEST_CASE(
    "death: a commit completes the rounds that waited for the dead, and its whole "
    "contributions count",
    "[elastic]") {
  Cluster cluster(2, 3);
  std::promise<void> dead;
  auto dead_future = dead.get_future().share();
  auto survive = [&](std::uint32_t w) {
    auto store = cluster.open(w);
    std::vector<float> values(3000, 0);
    init(*store, "w", values);
    init_everywhere(*store);
    boundary(*store, 0);
    if (count_in(*store) != 3) throw std::runtime_error("not three");
    dead_future.wait();
    // Worker 2 contributed to this round before it died.
    const float with_the_dead = count_in(*store);
    const float without = count_in(*store);
    boundary(*store, 1);
    return std::pair(with_the_dead, without);
  };
  auto a = std::async(std::launch::async, survive, 0);
  auto b = std::async(std::launch::async, survive, 1);
  {
    std::vector<float> ones(3000, 1);  // the library uses it until the store ends
    auto store = cluster.open(2);
    init(*store, "w", ones);
    init_everywhere(*store);
    boundary(*store, 0);
    CHECK(count_in(*store) == 3);
    const auto handle = must(store->push({"w"}, {array_of(ones)}, {}));
    said_to_all(*store);
    CHECK_FALSE(store->wait(handle, 0.1));  // the others have not contributed
  }
  dead.set_value();
  CHECK(a.wait_for(100ms) == std::future_status::timeout);  // only a commit changes the set
  cluster.shrink({WorkerId(0), WorkerId(1)});
  CHECK(a.get() == std::pair(3.0f, 2.0f));
  CHECK(b.get() == std::pair(3.0f, 2.0f));
}

TEST_CASE("death: frames in flight across an emergency commit are neither lost nor doubled",
          "[elastic]") {
  Cluster cluster(3, 3);
  constexpr int kRounds = 300;
  std::atomic<int> progress = 0;
  auto survive = [&](std::uint32_t w) {
    auto store = cluster.open(w);
    std::vector<float> values(20'000, 0);
    init(*store, "w", values);
    boundary(*store, 0);
    std::vector<float> sums;
    for (int i = 0; i < kRounds; ++i) {
      std::vector<float> ones(values.size(), 1);
      must(pushpull(*store, "w", ones, values, {}));
      // Per chunk the round had three or two contributors, never something else.
      for (const float v : values)
        if (v != 3 && v != 2) throw std::runtime_error("a contribution was lost or doubled");
      sums.insert(sums.end(), values.begin(), values.end());
      ++progress;
    }
    return sums;
  };
  auto a = std::async(std::launch::async, survive, 0);
  auto b = std::async(std::launch::async, survive, 1);
  {
    auto store = cluster.open(2);
    std::vector<float> values(20'000, 0);
    init(*store, "w", values);
    boundary(*store, 0);
    std::vector<float> ones(values.size(), 1);
    for (int i = 0; i < kRounds / 3; ++i) must(pushpull(*store, "w", ones, values, {}));
  }
  cluster.shrink({WorkerId(0), WorkerId(1)});
  const auto sums = a.get();
  CHECK(sums == b.get());
  CHECK(std::count(sums.begin(), sums.begin() + kRounds / 3 * 20'000, 3.0f) ==
        kRounds / 3 * 20'000);
  CHECK(sums.back() == 2);
}

TEST_CASE("death of the one that was to give initial values: the next one gives them",
          "[elastic]") {
  Cluster cluster(2, 2);
  auto gone = cluster.open(0);
  auto second = std::async(std::launch::async, [&] {
    auto store = cluster.open(1);
    std::vector<float> values(3000, 4);
    init(*store, "w", values);
    std::fill(values.begin(), values.end(), 0.0f);
    pull(*store, "w", values);
    return values;
  });
  CHECK(second.wait_for(100ms) == std::future_status::timeout);
  gone.reset();
  cluster.shrink({WorkerId(1)});
  CHECK(second.get() == std::vector<float>(3000, 4));
}

TEST_CASE("commit: a frame of a generation not learnt yet is held until the commit", "[elastic]") {
  Cluster cluster(2, 2, false);
  std::vector<std::future<float>> all;
  std::atomic<int> opened = 0;
  for (std::uint32_t w = 0; w < 2; ++w) {
    all.push_back(std::async(std::launch::async, [&, w] {
      auto store = cluster.open(w);
      ++opened;
      must(store->barrier());
      std::vector<float> values(3000, 0);
      init(*store, "w", values);
      return count_in(*store);
    }));
  }
  REQUIRE(eventually([&] { return opened == 2; }));
  CHECK(all[0].wait_for(100ms) == std::future_status::timeout);
  cluster.commit({WorkerId(0), WorkerId(1)});
  for (auto& one : all) CHECK(one.get() == 2);
}
