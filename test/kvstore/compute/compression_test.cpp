#include "kvstore/compute/compression.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <random>

#include "kvstore/compute/kernels/kernels.h"
#include "kvstore/worker/threshold_warnings.h"
#include "test/kvstore/cluster.h"
#include "test/kvstore/proxy.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

/// A server's result from one worker's gradients, element by element.
class Reference {
 public:
  Reference(data::Codec codec, std::size_t n) : codec_(codec), residual_(n, 0) {}

  std::vector<float> sent(const std::vector<float>& gradient) {
    std::vector<float> out(gradient.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      residual_[i] += gradient[i];
      out[i] = said(residual_[i]);
      residual_[i] -= out[i];
    }
    return out;
  }

  static constexpr float kThreshold = 0.75f;

 private:
  [[nodiscard]] float said(float r) const {
    if (codec_ == data::Codec::kTwoBit)
      return r >= kThreshold ? kThreshold : r <= -kThreshold ? -kThreshold : 0;
    const auto& half = codec_ == data::Codec::kFp16 ? kv::kernels().fp16 : kv::kernels().bf16;
    std::uint16_t code = 0;
    float rest = 0;
    float out = 0;
    half.encode(&code, &rest, &r, 1);
    half.decode(&out, &code, 1);
    return out;
  }

  data::Codec codec_;
  std::vector<float> residual_;
};

std::string spec_of(data::Codec codec) {
  return std::string(kv::name_of(codec)) + (codec == data::Codec::kTwoBit ? " threshold=0.75" : "");
}

std::vector<float> gradient_of(std::size_t n, std::uint32_t worker, std::uint64_t round) {
  std::mt19937 engine(static_cast<unsigned>(round * 10 + worker));
  std::normal_distribution<float> normal(0, 0.6f);
  std::vector<float> out(n);
  for (auto& v : out) v = normal(engine);
  return out;
}

kv::PushOptions options_of(std::uint64_t samples, std::uint64_t step,
                           data::Reduce reduce = data::Reduce::kAuto) {
  kv::PushOptions options;
  options.samples = samples;
  options.step = step;
  options.learning_rate = 1;
  options.reduce = reduce;
  return options;
}

void expect(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

}  // namespace

TEST_CASE("compression: what a person writes is understood, or the wrong word named",
          "[compression]") {
  CHECK(kv::parse_compression("none")->codec == data::Codec::kNone);
  CHECK(kv::parse_compression(" fp16 ")->codec == data::Codec::kFp16);
  CHECK(kv::parse_compression("bf16")->codec == data::Codec::kBf16);
  CHECK(kv::parse_compression("2bit")->threshold == 0.5f);
  CHECK(kv::parse_compression("2bit  threshold=0.25")->threshold == 0.25f);
  for (const char* bad :
       {"", "3bit", "1bit", "1bit threshold=0", "2bit threshold=0", "2bit threshold=-1",
        "2bit threshold=nan", "2bit threshold=inf", "2bit threshold=", "2bit threshold=0.5x",
        "2bit bits=2", "fp16 threshold=0.5"}) {
    CAPTURE(bad);
    CHECK_FALSE(kv::parse_compression(bad));
  }
  CHECK(kv::parse_compression("2bit threshold=0").error().message.find("above 0") !=
        std::string::npos);
  CHECK(kv::parse_compression("1bit").error().message.find("1bit is gone since 0.1.0") !=
        std::string::npos);
  CHECK(kv::parse_compression("gzip").error().message.find("'gzip'") != std::string::npos);
}

TEST_CASE("compression: 2bit leaves out what is infinite or NaN, for one round", "[compression]") {
  kv::GradientEncoder encoder;
  kv::Compression how;
  how.codec = data::Codec::kTwoBit;
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> gradient = {1, std::nanf(""), -infinity, 0.25f};
  auto payload = encoder.encode(how, gradient.data(), 4, true);
  CHECK(kv::count_nonfinite(how.codec, payload.data(), 4) == 2);
  gradient = {0, 0.5f, 0, 0.25f};
  payload = encoder.encode(how, gradient.data(), 4, true);
  CHECK(kv::count_nonfinite(how.codec, payload.data(), 4) == 0);
  std::vector<float> values(4);
  kv::decode(how.codec, values.data(), payload.data(), 4);
  CHECK(values == std::vector<float>{0.5f, 0.5f, 0, 0.5f});
}

TEST_CASE("compression: rounds of two workers are those of the reference, residuals included",
          "[compression]") {
  constexpr std::uint64_t kRounds = 6;
  const auto codec = GENERATE(data::Codec::kTwoBit, data::Codec::kFp16, data::Codec::kBf16);
  const bool deterministic = GENERATE(false, true);
  const bool uneven = GENERATE(false, true);
  const std::size_t n = GENERATE(1u, 15u, 5001u);
  CAPTURE(spec_of(codec), deterministic, uneven, n);
  Cluster cluster(2, 2, true, deterministic);
  cluster.transport = kv::Transport::kTcp;
  const std::array<std::uint64_t, 2> samples = {3, uneven ? 5u : 3u};
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(n, 0);
    init(store, "mean", values);
    init(store, "sum", values);
    must(store.set_gradient_compression(spec_of(codec)));
    std::vector<Reference> reference(4, Reference(codec, n));
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      auto mine = gradient_of(n, w, round);
      const auto a = reference[0].sent(gradient_of(n, 0, round));
      const auto b = reference[1].sent(gradient_of(n, 1, round));
      const auto na = static_cast<float>(samples[0]);
      const auto nb = static_cast<float>(samples[1]);
      must(pushpull(store, "mean", mine, values,
                    options_of(samples[w], round, data::Reduce::kMean)));
      for (std::size_t i = 0; i < n; ++i) {
        const float mean = uneven ? (na * a[i] + nb * b[i]) / (na + nb) : (a[i] + b[i]) / 2;
        expect(values[i] == mean, "not the mean of what was sent");
      }
      must(pushpull(store, "sum", mine, values, options_of(samples[w], round)));
      for (std::size_t i = 0; i < n; ++i)
        expect(values[i] == a[i] + b[i], "not the sum of what was sent");
    }
  });
}

TEST_CASE("compression: the optimizer steps by what was sent, and asynchronously nothing is lost",
          "[compression]") {
  const std::string type = GENERATE("dist_sync", "dist_async");
  Cluster cluster(1, 2);
  cluster.transport = kv::Transport::kTcp;
  cluster.run(
      2,
      [&](kv::Store& store, std::uint32_t w) {
        std::vector<float> values(3000, 0);
        init(store, "w", values);
        must(store.set_optimizer("sgd"));
        must(store.set_gradient_compression("2bit threshold=0.5"));
        must(store.barrier());
        // 0.25 a step is sent as 0.5 every other step.
        std::vector<float> g(values.size(), w == 0 ? 0.25f : -0.25f);
        for (std::uint64_t step = 0; step < 20; ++step)
          must(pushpull(store, "w", g, values, options_of(w == 0 ? 3 : 1, step)));
        must(store.barrier());
        pull(store, "w", values);
        const float wanted = type == "dist_sync" ? -10 * (3 * 0.5f - 0.5f) / 4 : 0;
        expect(values == std::vector<float>(values.size(), wanted), "not what was sent");
      },
      type);
}

TEST_CASE("compression: a contribution without samples adds nothing and leaves its residual",
          "[compression]") {
  Cluster cluster(1, 2);
  cluster.transport = kv::Transport::kTcp;
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(100, 0);
    init(store, "w", values);
    must(store.set_gradient_compression("2bit threshold=0.5"));
    const auto round = [&](float g, std::uint64_t samples, std::uint64_t step) {
      std::vector<float> gradient(values.size(), g);
      must(pushpull(store, "w", gradient, values, options_of(samples, step)));
      return values[7];
    };
    expect(round(0.3f, 1, 0) == 0, "0.3 is below the threshold");
    expect(round(w == 0 ? 1000 : 0, w == 0 ? 0 : 1, 1) == 0, "something was added");
    expect(round(0.3f, 1, 2) == 1.0f, "the residual is gone");
    expect(round(0, 1, 3) == 0, "the residual grew");
  });
}

TEST_CASE("compression: auxiliary keys and other types travel whole", "[compression]") {
  Cluster cluster(1, 2);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> statistics(10, 0);
    std::vector<double> wide(10, 0);
    init(store, "running_mean", statistics, data::kAuxiliary);
    init(store, "wide", wide);
    must(store.set_gradient_compression("2bit threshold=0.5"));
    std::vector<float> g(10, w == 0 ? 0.125f : 0.375f);
    must(pushpull(store, "running_mean", g, statistics, options_of(1, 0)));
    expect(statistics == std::vector<float>(10, 0.25f), "an auxiliary key was compressed");
    std::vector<double> h(10, 0.1);
    must(pushpull(store, "wide", h, wide, options_of(1, 0)));
    expect(wide == std::vector<double>(10, 0.1 + 0.1), "a float64 key was compressed");
  });
}

TEST_CASE(
    "compression: over TCP a gradient is a sixteenth or less, in shared memory it stays whole",
    "[compression]") {
  constexpr std::size_t kElements = 64 << 10;
  const auto transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  Cluster cluster(1, 1);
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  cluster.transport = transport;
  cluster.run(1, [&](kv::Store& store, std::uint32_t) {
    std::vector<float> values(kElements, 0);
    init(store, "w", values);
    const auto said = [&] {
      std::size_t bytes = 0;
      for (const auto& one : proxy.said()) bytes += one.size();
      return bytes;
    };
    const std::size_t before = said();
    must(store.set_gradient_compression("2bit threshold=0.5"));
    std::vector<float> g(kElements, 0.75f);
    must(pushpull(store, "w", g, values, options_of(1, 0)));
    const bool is_tcp = transport == kv::Transport::kTcp;
    expect(values[5] == (is_tcp ? 0.5f : 0.75f), "not what was to be sent");
    // Codes, and for each of 64 chunks a header, at most 8 bytes and, under test, two tags.
    const std::size_t tags =
        data_auth_under_test() == kv::DataAuth::kFrames ? 2 * data::kTagBytes : 0;
    const std::size_t wanted = kElements / 4 + 64 * (data::kHeaderBytes + tags + 8);
    expect(!is_tcp || said() - before < wanted + 1000, "more was sent than the codes");
  });
}

TEST_CASE("compression: gradients in shared memory and gradients in codes meet in one round",
          "[compression]") {
  const bool deterministic = GENERATE(false, true);
  Cluster cluster(1, 3, true, deterministic);
  std::vector<std::unique_ptr<kv::Store>> stores;
  for (std::uint32_t w = 0; w < 3; ++w) {
    cluster.transport = w == 0 ? kv::Transport::kSharedMemory : kv::Transport::kTcp;
    stores.push_back(cluster.open(w));
  }
  std::vector<std::future<std::vector<float>>> all;
  for (std::uint32_t w = 0; w < 3; ++w)
    all.push_back(std::async(std::launch::async, [&, w] {
      auto& store = *stores[w];
      std::vector<float> values(3000, 0);
      init(store, "w", values);
      must(store.set_gradient_compression("2bit threshold=0.5"));
      std::vector<float> g(values.size(), 0.75f);
      must(pushpull(store, "w", g, values, options_of(w + 1, 0, data::Reduce::kMean)));
      return values;
    }));
  for (auto& one : all)
    CHECK(one.get() == std::vector<float>(3000, (0.75f + 2 * 0.5f + 3 * 0.5f) / 6));
}

TEST_CASE("compression: contributors that disagree are an error naming both", "[compression]") {
  // Shared memory has no compression, but the disagreement is an error there, too.
  Cluster cluster(1, 2);
  cluster.transport = GENERATE(kv::Transport::kTcp, kv::Transport::kSharedMemory);
  cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
    std::vector<float> values(10, 0);
    init(store, "w", values);
    if (w == 1) must(store.set_gradient_compression("2bit"));
    const auto done = pushpull(store, "w", values, values, options_of(1, 0));
    expect(!done && done.error().code == kv::Code::kMismatch, "none and 2bit were added up");
    for (const char* word : {"'w'", "worker 0", "none", "worker 1", "2bit"})
      expect(done.error().message.find(word) != std::string::npos, done.error().message.c_str());
    // The round is over; the next one works.
    must(store.set_gradient_compression("fp16"));
    std::vector<float> g(10, 1);
    must(pushpull(store, "w", g, values, options_of(1, 1)));
    expect(values == std::vector<float>(10, 2), "the next round does not work");
  });
}

TEST_CASE("compression: sent again after a cut, a gradient counts once and its residual too",
          "[compression]") {
  Cluster cluster(1, 2);
  cluster.transport = kv::Transport::kTcp;
  Proxy proxy(cluster.server().port());
  cluster.redirect(0, proxy.port());
  constexpr std::uint64_t kSteps = 40;
  constexpr std::size_t kElements = 100'000;
  std::atomic<std::uint64_t> steps = 0;
  auto scissors = std::async(std::launch::async, [&] {
    for (std::uint64_t at = 2; at < kSteps; at += 2)
      if (eventually([&] { return steps >= at; })) proxy.cut();
  });
  std::exception_ptr failed;
  try {
    cluster.run(2, [&](kv::Store& store, std::uint32_t w) {
      std::vector<float> values(kElements, 0);
      init(store, "w", values);
      must(store.set_gradient_compression("2bit threshold=0.75"));
      must(store.barrier());
      std::array<Reference, 2> reference = {Reference(data::Codec::kTwoBit, 1),
                                            Reference(data::Codec::kTwoBit, 1)};
      for (std::uint64_t step = 0; step < kSteps; ++step) {
        std::vector<float> g(kElements, w == 0 ? 0.3f : 0.4f);
        must(pushpull(store, "w", g, values, options_of(1, step)));
        const float wanted = reference[0].sent({0.3f})[0] + reference[1].sent({0.4f})[0];
        expect(values == std::vector<float>(kElements, wanted), "lost, or counted twice");
        if (w == 0) ++steps;
      }
    });
  } catch (...) {
    failed = std::current_exception();
  }
  steps = kSteps;
  scissors.get();
  if (failed) std::rethrow_exception(failed);
  CHECK(proxy.said().size() > 6);  // it was cut at all
}

TEST_CASE("compression: residuals stay with their worker across a join and a leave",
          "[compression][elastic]") {
  // Worker 2 joins at epoch 1, worker 1 leaves at epoch 2; the others keep their residuals.
  constexpr std::size_t kElements = 5'001;
  constexpr std::uint64_t kRounds = 5;  // an epoch's
  const auto codec = GENERATE(data::Codec::kTwoBit, data::Codec::kBf16);
  const bool deterministic = GENERATE(false, true);
  CAPTURE(spec_of(codec), deterministic);
  const std::vector<std::vector<std::uint32_t>> members = {{0, 1}, {0, 1, 2}, {0, 2}};
  Cluster cluster(2, 2, true, deterministic);
  cluster.transport = kv::Transport::kTcp;
  std::promise<void> joiner_is_there;
  std::promise<void> leave_is_planned;
  const std::array gates = {joiner_is_there.get_future().share(),
                            leave_is_planned.get_future().share()};

  std::atomic<int> epochs_begun = 0;  // by a member of the first one
  // Every worker computes the reference of all workers.
  const auto train = [&](kv::Store& store, std::uint32_t w, std::uint32_t from) {
    std::vector<Reference> reference(3, Reference(codec, kElements));
    std::vector<float> values(kElements);
    for (std::uint32_t epoch = 0; epoch < members.size(); ++epoch) {
      const auto& now = members[epoch];
      const bool takes_part = epoch >= from;
      if (takes_part) {
        const auto view = store.epoch_boundary(Epoch(epoch));
        if (!view && view.error().code == kv::Code::kLeave) return epoch;
        must(view);
        expect(view->num_workers == now.size(), "another number of members");
        if (epoch == 0) ++epochs_begun;
      }
      for (std::uint64_t r = 0; r < kRounds; ++r) {
        const std::uint64_t round = epoch * kRounds + r;
        std::vector<std::vector<float>> sent;
        for (const auto i : now)
          sent.push_back(reference[i].sent(gradient_of(kElements, i, round)));
        if (!takes_part) continue;
        auto mine = gradient_of(kElements, w, round);
        must(pushpull(store, "w", mine, values, options_of(1, round)));
        for (std::size_t i = 0; i < kElements; ++i) {
          float sum = 0;
          for (const auto& one : sent) sum += one[i];
          // Three contributions of bf16 have several sums.
          const float off = codec == data::Codec::kTwoBit || now.size() == 2 ? 0 : 1e-5f;
          expect(std::abs(values[i] - sum) <= off, "not the sum of what was sent");
        }
      }
      if (takes_part && epoch < gates.size()) gates[epoch].wait();  // the next one is planned
    }
    return static_cast<std::uint32_t>(members.size());
  };
  const auto member = [&](std::uint32_t w) {
    auto store = cluster.open(w);
    std::vector<float> values(kElements, 0);
    init(*store, "w", values);
    must(store->set_gradient_compression(spec_of(codec)));
    return train(*store, w, 0);
  };
  auto stays = std::async(std::launch::async, member, 0);
  auto leaves = std::async(std::launch::async, member, 1);
  CHECK(eventually([&] { return epochs_begun == 2; }));
  cluster.plan({WorkerId(0), WorkerId(1), WorkerId(2)});
  auto joins = std::async(std::launch::async, [&] {
    auto store = cluster.open(2, "dist_sync", true);
    std::vector<float> values(kElements, 0);
    init(*store, "w", values);
    must(store->set_gradient_compression(spec_of(codec)));
    return train(*store, 2, 1);
  });
  CHECK(eventually([&] { return cluster.arrived() == 1; }));  // it waits for its first boundary
  joiner_is_there.set_value();
  CHECK(eventually([&] { return cluster.generation() == Generation(2); }));
  cluster.plan({WorkerId(0), WorkerId(2)});
  leave_is_planned.set_value();
  CHECK(stays.get() == 3);
  CHECK(leaves.get() == 2);
  CHECK(joins.get() == 3);
}

TEST_CASE("compression: a residual that outgrows its gradients is said once per key",
          "[compression]") {
  class Lines final : public io::Log {
   public:
    void line(io::Level level, std::string_view text) override {
      CHECK(level == io::Level::kWarning);
      said.emplace_back(text);
    }
    std::vector<std::string> said;
  } lines;
  kv::ThresholdWarnings warnings(lines);
  const auto play = [&](const std::string& key, const std::string& spec, float size, int rounds) {
    const auto how = kv::parse_compression(spec).value();
    kv::GradientEncoder chunks[2];
    std::mt19937 random(7);
    std::normal_distribution<float> normal(size, size);
    std::vector<float> gradient(1'000);
    for (int round = 0; round < rounds; ++round)
      for (auto& encoder : chunks) {
        for (auto& g : gradient) g = normal(random);
        (void)encoder.encode(how, gradient.data(), gradient.size(), true);
        warnings.look_at(encoder, how, key);
      }
  };
  // Small steps accumulate up to the threshold: the residual stays below one code's value.
  play("fc1.weight", "2bit threshold=0.5", 0.001F, 400);
  play("fc1.weight", "2bit threshold=0.002", 0.001F, 400);
  play("fc1.weight", "fp16", 1, 400);
  // Each step adds 1 and takes 0.01 away.
  play("fc1.weight", "2bit threshold=0.01", 1, 100);
  CHECK(lines.said.empty());
  play("fc2.weight", "2bit threshold=0.01", 1, 300);
  REQUIRE(lines.said.size() == 1);
  INFO(lines.said[0]);
  CHECK(lines.said[0].starts_with("threshold 0.01 is too small for fc2.weight: the residual is "));
  CHECK(lines.said[0].find(" times the gradient") != std::string::npos);
}
