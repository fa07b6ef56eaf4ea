#include <algorithm>
#include <cfloat>
#include <cmath>
#include <future>
#include <random>

#include "test/kvstore/cluster.h"
#include "test/kvstore/eventually.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

std::vector<float> random_values(std::size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> out(n);
  for (auto& v : out) v = normal(engine);
  return out;
}

}  // namespace

TEST_CASE("dist_sync: sums equal the float64 reference and are the same bits on every worker",
          "[dist_sync]") {
  constexpr int kRounds = 4;
  const std::vector<std::size_t> sizes = {1, 7, 1000, 5001};
  auto part = [&](int round, std::size_t key, std::uint32_t worker) {
    return random_values(sizes[key], static_cast<unsigned>(round) * 1000 +
                                         static_cast<unsigned>(key) * 100 + worker);
  };
  const bool deterministic = GENERATE(false, true);
  const std::uint32_t workers = GENERATE(1u, 2u, 3u, 5u);
  const std::uint32_t servers = GENERATE(1u, 2u, 3u);
  CAPTURE(deterministic, workers, servers);
  Cluster cluster(servers, workers, true, deterministic);
  std::vector<std::vector<std::vector<float>>> got(workers);
  cluster.run(workers, [&](kv::Store& store, std::uint32_t w) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      std::vector<float> zero(sizes[k], 0);
      init(store, "k" + std::to_string(k), zero);
    }
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t k = 0; k < sizes.size(); ++k) {
        auto mine = part(round, k, w);
        std::vector<float> sum(sizes[k]);
        kv::PushOptions options;
        options.step = static_cast<std::uint64_t>(round);
        must(pushpull(store, "k" + std::to_string(k), mine, sum, options));
        got[w].push_back(sum);
      }
    }
  });
  for (std::uint32_t w = 1; w < workers; ++w) REQUIRE(got[w] == got[0]);
  for (int round = 0; round < kRounds; ++round) {
    for (std::size_t k = 0; k < sizes.size(); ++k) {
      std::vector<double> sum(sizes[k], 0);
      std::vector<double> sizes_of(sizes[k], 0);
      for (std::uint32_t w = 0; w < workers; ++w) {
        const auto values = part(round, k, w);
        for (std::size_t i = 0; i < values.size(); ++i) {
          sum[i] += static_cast<double>(values[i]);
          sizes_of[i] += std::abs(static_cast<double>(values[i]));
        }
      }
      const auto& have = got[0][static_cast<std::size_t>(round) * sizes.size() + k];
      for (std::size_t i = 0; i < sum.size(); ++i) {
        // Rounded once for each addition.
        const double bound =
            static_cast<double>(workers) * static_cast<double>(FLT_EPSILON) * sizes_of[i];
        if (!(std::abs(static_cast<double>(have[i]) - sum[i]) <= bound))
          FAIL("round " << round << " key " << k << "[" << i << "]: " << have[i] << " for "
                        << sum[i]);
      }
    }
  }
}

TEST_CASE("dist_sync: two workers with batch 32 follow one worker with batch 64", "[dist_sync]") {
  constexpr std::size_t kIn = 20;
  constexpr std::size_t kBatch = 64;
  constexpr int kSteps = 100;
  // Logistic regression: the gradient is the mean over the samples this worker was given.
  auto gradient = [](const std::vector<float>& w, int step, std::size_t begin, std::size_t end) {
    std::vector<float> g(kIn, 0);
    for (std::size_t s = begin; s < end; ++s) {
      const auto x =
          random_values(kIn, static_cast<unsigned>(step) * 100 + static_cast<unsigned>(s));
      const float y = x[0] + 0.5f * x[1] > 0 ? 1.0f : 0.0f;
      float z = 0;
      for (std::size_t i = 0; i < kIn; ++i) z += w[i] * x[i];
      const float error = 1 / (1 + std::exp(-z)) - y;
      for (std::size_t i = 0; i < kIn; ++i) g[i] += error * x[i];
    }
    for (auto& v : g) v /= static_cast<float>(end - begin);
    return g;
  };
  for (const char* optimizer : {"sgd momentum=0.9 weight_decay=0.001", "adam"}) {
    auto train = [&](std::uint32_t workers) {
      Cluster cluster(2, workers);
      std::vector<std::vector<float>> weights(workers);
      cluster.run(workers, [&](kv::Store& store, std::uint32_t w) {
        std::vector<float> values(kIn, 0.1f);
        init(store, "w", values);
        must(store.set_optimizer(optimizer));
        const std::size_t mine = kBatch / workers;
        for (int step = 0; step < kSteps; ++step) {
          auto g = gradient(values, step, w * mine, (w + 1) * mine);
          kv::PushOptions options;
          options.samples = mine;
          options.step = static_cast<std::uint64_t>(step);
          options.learning_rate = 0.05f;
          must(pushpull(store, "w", g, values, options));
        }
        weights[w] = values;
      });
      for (const auto& one : weights) REQUIRE(one == weights[0]);
      return weights[0];
    };
    const auto one = train(1);
    const auto two = train(2);
    for (std::size_t i = 0; i < kIn; ++i) CHECK(std::abs(one[i] - two[i]) < 1e-5f);
    CHECK(std::abs(one[0] - 0.1f) > 0.01f);  // it did learn
  }
}

TEST_CASE("dist_sync: uneven and empty batches give the sample-weighted mean", "[dist_sync]") {
  Cluster cluster(1, 3);
  cluster.run(3, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(10, 0);
    init(store, "w", values);
    must(store.set_optimizer("sgd"));
    const std::array<std::uint64_t, 3> samples = {32, 8, 0};
    std::vector<float> g(10, w == 0 ? 1.0f : w == 1 ? 6.0f : 1000.0f);
    kv::PushOptions options;
    options.samples = samples[w];
    options.learning_rate = 1;
    must(pushpull(store, "w", g, values, options));
    if (values[3] != -2.0f) throw std::runtime_error("not (32*1 + 8*6) / 40");
    options.step = 1;
    options.samples = 0;
    must(pushpull(store, "w", g, values, options));
    if (values[3] != -2.0f) throw std::runtime_error("an empty round moved the values");
  });
}

TEST_CASE("dist_sync: auxiliary keys are averaged without the optimizer", "[dist_sync]") {
  Cluster cluster(1, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(10, 0);
    init(store, "running_mean", values, data::kAuxiliary);
    must(store.set_optimizer("sgd momentum=0.9"));
    std::vector<float> mine(10, w == 0 ? 1.0f : 5.0f);
    kv::PushOptions options;
    options.samples = w == 0 ? 3 : 1;
    options.learning_rate = 7;
    must(pushpull(store, "running_mean", mine, values, options));
    if (values[0] != 2.0f) throw std::runtime_error("not (3*1 + 1*5) / 4");
  });
}

TEST_CASE("dist_sync: contributors that disagree on the step are an error naming both",
          "[dist_sync]") {
  Cluster cluster(1, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(10, 0);
    init(store, "w", values);
    kv::PushOptions options;
    options.step = 5 + w;
    const auto done = pushpull(store, "w", values, values, options);
    if (done) throw std::runtime_error("steps 5 and 6 were added up");
    if (done.error().code != kv::Code::kMismatch) throw std::runtime_error("wrong code");
    const auto& text = done.error().message;
    for (const char* word : {"'w'", "worker 0", "step 5", "worker 1", "step 6"})
      if (text.find(word) == std::string::npos) throw std::runtime_error(text);
    // The round is over; the next one works.
    options.step = 7;
    must(pushpull(store, "w", values, values, options));
  });
}

TEST_CASE("dist_sync: keys are matched by name, whatever the order of calls", "[dist_sync]") {
  Cluster cluster(2, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> a(3000, w == 0 ? 1.0f : 9.0f);
    std::vector<float> b(2000, w == 0 ? 2.0f : 9.0f);
    if (w == 0)
      must(store.init({"a", "b"}, {array_of(a), array_of(b)}, 0));
    else
      must(store.init({"b", "a"}, {array_of(b), array_of(a)}, 0));
    pull(store, "a", a);
    pull(store, "b", b);
    if (a != std::vector<float>(3000, 1) || b != std::vector<float>(2000, 2))
      throw std::runtime_error("rank 0's values were not taken");
    std::vector<float> other(2999);
    const auto wrong = store.init({"a"}, {array_of(other)}, 0);
    if (wrong || wrong.error().code != kv::Code::kMismatch)
      throw std::runtime_error("shape unchecked");
  });
}

TEST_CASE("dist_sync: a barrier meets everybody and a removal completes it", "[dist_sync]") {
  Cluster cluster(2, 3);
  std::atomic<int> inside = 0;
  auto meet = [&](std::uint32_t w) {
    auto store = cluster.open(w);
    must(store->barrier());
    ++inside;
    must(store->barrier());
    return 0;
  };
  auto first = std::async(std::launch::async, meet, 0);
  auto second = std::async(std::launch::async, meet, 1);
  {
    auto third = cluster.open(2);
    CHECK(inside == 0);
    must(third->barrier());
    REQUIRE(eventually([&] { return inside == 2; }));
  }
  CHECK(first.wait_for(50ms) == std::future_status::timeout);  // the second barrier lacks worker 2
  cluster.shrink({WorkerId(0), WorkerId(1)});
  first.get();
  second.get();
}

TEST_CASE("dist_async: every push is applied on arrival, exactly once", "[dist_async]") {
  Cluster cluster(2, 3);
  constexpr int kPushes = 50;
  cluster.run(
      3,
      [&](kv::Store& store, std::uint32_t w) {
        std::vector<double> values(3000, 0);
        init(store, "w", values);
        must(store.set_optimizer("sgd"));
        must(store.barrier());
        std::vector<double> g(3000, w + 1.0);
        for (int i = 0; i < kPushes; ++i) {
          kv::PushOptions options;
          options.learning_rate = 1;
          options.step = static_cast<std::uint64_t>(i) * (w + 1);  // no agreement is needed
          must(pushpull(store, "w", g, values, options));
          if (values[0] > -(w + 1.0) * (i + 1)) throw std::runtime_error("own push missing");
        }
        must(store.barrier());
        pull(store, "w", values);
        if (values != std::vector<double>(3000, -6.0 * kPushes))
          throw std::runtime_error("pushes were lost or doubled");
      },
      "dist_async");
}

TEST_CASE("dist_async: auxiliary keys are the mean over the workers, epoch after epoch",
          "[dist_async]") {
  Cluster cluster(2, 2);
  cluster.run(
      2,
      [&](kv::Store& store, std::uint32_t w) {
        std::vector<float> weights(3000, 0);
        std::vector<float> statistics(3000, 0);
        init(store, "w", weights);
        init(store, "mean", statistics, data::kAuxiliary);
        for (std::uint32_t epoch = 0; epoch < 3; ++epoch) {
          (void)must(store.epoch_boundary(Epoch(epoch)));
          std::vector<float> gradient(3000, 1);
          // Unequal: a worker's pushes of parameters are its own affair.
          for (std::uint32_t i = 0; i <= w; ++i)
            must(pushpull(store, "w", gradient, weights, kv::PushOptions()));
          std::vector<float> mine(3000, w == 0 ? 1.0F : 3.0F);
          must(pushpull(store, "mean", mine, statistics, kv::PushOptions()));
          if (statistics != std::vector<float>(3000, 2.0F))
            throw std::runtime_error("not the mean: " + std::to_string(statistics[0]));
          must(store.finish_epoch());
        }
      },
      "dist_async");
}

TEST_CASE("keys: one that others have used before is taken up where it is", "[keys]") {
  Cluster cluster(2, 2);
  auto first = cluster.open(0);
  auto second = cluster.open(1);
  std::vector<float> values(3000, 0);
  const auto both = [&](const auto& call) {
    auto other = std::async(std::launch::async, [&] { call(*second); });
    call(*first);
    other.get();
  };
  both([](kv::Store& store) { (void)must(store.epoch_boundary(Epoch(0))); });
  must(second->finish_epoch());
  init(*first, "late", values);
  std::vector<float> one(3000, 1);
  for (int round = 0; round < 3; ++round)
    must(pushpull(*first, "late", one, values, kv::PushOptions()));
  both([](kv::Store& store) { (void)must(store.epoch_boundary(Epoch(1))); });
  both([](kv::Store& store) {
    std::vector<float> mine(3000, 0);
    init(store, "late", mine);
    std::vector<float> gradient(3000, 1);
    must(pushpull(store, "late", gradient, mine, kv::PushOptions()));
    if (mine != std::vector<float>(3000, 2)) throw std::runtime_error("not the sum of both");
  });
}

TEST_CASE("dist_sync: a worker's samples and figures reach the supervisor without a call per step",
          "[dist_sync]") {
  Cluster cluster(1, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(10);
    for (const char* key : {"a", "b"}) init(store, key, values);
    kv::PushOptions options;
    options.samples = 7;
    for (options.step = 0; options.step < 5; ++options.step)
      for (const char* key : {"a", "b"}) must(pushpull(store, key, values, values, options));
    must(store.report("train_loss", 0.5 + w));
    must(store.report("phase", "warm-up"));
    CHECK(eventually([&] { return cluster.figures(WorkerId(w)).texts.size() == 1; }));
  });
  CHECK(cluster.figures(WorkerId(1)).samples == 35);
  CHECK(cluster.figures(WorkerId(1)).values.front() ==
        std::pair<std::string, double>("train_loss", 1.5));
  CHECK(cluster.figures(WorkerId(1)).texts.front() ==
        std::pair<std::string, std::string>("phase", "warm-up"));
}
