#include "kvstore/server/chunk_value.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "kvstore/compute/compression.h"
#include "test/kvstore/server/shard_bench.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

TEST_CASE("chunk value: learning rates that differ are an error naming both, to both", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.set_optimizer(0, "sgd");
  bench.take();
  for (std::uint32_t w = 0; w < 2; ++w) {
    auto header = bench.push_header(w, 1);
    header.learning_rate = w == 0 ? 0.25f : 0.5f;
    bench.say(header, ShardBench::bytes({1, 1, 1}));
  }
  const auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  for (const auto& answer : answers) {
    CHECK(ShardBench::code(answer) == data::Code::kMismatch);
    CHECK(answer.payload.find("0.25") != std::string::npos);
    CHECK(answer.payload.find("0.5") != std::string::npos);
  }
  CHECK(bench.value() == 0);
}

// A worker that continues without its connection (its store broke, for example) owns its memory
// again and may write to it while the round is still open.
TEST_CASE("chunk value: what a worker contributed is what it was when its connection ended",
          "[shard]") {
  const bool deterministic = GENERATE(false, true);
  const bool uses_optimizer = GENERATE(false, true);
  const bool others_share = GENERATE(false, true);
  CAPTURE(deterministic, uses_optimizer, others_share);
  ShardBench bench(deterministic);
  bench.commit(1, {0, 1, 2, 3});
  bench.init(0, 0);
  if (uses_optimizer) bench.set_optimizer(0, "sgd");
  std::vector<std::vector<float>> memory(4);
  const auto contribute = [&](std::uint32_t worker, float value, bool shares) {
    auto header = bench.push_header(worker, 1);
    header.learning_rate = -1;
    header.samples = worker + 1;
    memory[worker].assign(kElements, value);
    if (!shares) return bench.say(header, ShardBench::bytes(memory[worker]));
    SharedBuffers shared;
    shared.in = reinterpret_cast<const std::byte*>(memory[worker].data());
    shared.out = reinterpret_cast<std::byte*>(memory[worker].data());
    header.flags = data::kShared;
    bench.shard_.handle(header, {}, Time{}, shared);
  };
  const float want = uses_optimizer ? (1 * 8 + 2 * 4 + 3 * 16 + 4 * 32) / 10.0f : 8 + 4 + 16 + 32;
  contribute(1, 4, true);
  contribute(0, 8, others_share);
  contribute(2, 16, true);
  for (const std::uint32_t worker : {1u, 2u}) {
    bench.shard_.disconnect(WorkerId(worker));
    memory[worker].assign(kElements, 1000);
  }
  const bool is_back = GENERATE(false, true);
  if (is_back) contribute(1, 4, true);  // sends it again
  bench.take();
  contribute(3, 32, others_share);
  CHECK(bench.take().size() == (is_back ? 3u : 2u));
  CHECK(bench.value() == want);
  CHECK(memory[2] == std::vector<float>(kElements, 1000));
  if (is_back) CHECK(memory[1] == std::vector<float>(kElements, want));
}

TEST_CASE("chunk value: an answer being sent keeps its values while the next round is computed",
          "[shard]") {
  class Keeper : public Answers {
   public:
    void answer(WorkerId, const data::Header&, std::shared_ptr<const Payload> p) override {
      kept.push_back(std::move(p));
    }
    std::vector<std::shared_ptr<const Payload>> kept;
  } keeper;
  Shard shard(ShardBench::options(), keeper);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0)};
  shard.commit(commit, Time{});
  data::Header header;
  header.type = data::Type::kInit;
  header.samples = kElements;
  shard.handle(header, ShardBench::bytes({0, 0, 0}), Time{});
  header.type = data::Type::kPushPull;
  header.samples = 1;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    header.round = Round(round);
    const auto v = static_cast<float>(round);
    shard.handle(header, ShardBench::bytes({v, v, v}), Time{});
  }
  for (std::size_t round = 1; round <= 3; ++round)
    CHECK(ShardBench::floats(std::string(keeper.kept.at(round)->text())).at(0) ==
          static_cast<float>(round));
}

TEST_CASE("chunk value: asynchronous pushes add up, whoever still holds an earlier value",
          "[shard]") {
  constexpr std::size_t kMany = 10'000;  // a few blocks, the last one cut
  class Keeper : public Answers {
   public:
    void answer(WorkerId, const data::Header&, std::shared_ptr<const Payload> p) override {
      if (keeps) kept.push_back(std::move(p));
    }
    bool keeps = false;
    std::vector<std::shared_ptr<const Payload>> kept;
  } keeper;
  Shard shard(ShardBench::options(), keeper);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0)};
  shard.commit(commit, Time{});
  data::Header header;
  header.type = data::Type::kInit;
  header.samples = kMany;
  shard.handle(header, ShardBench::bytes(std::vector<float>(kMany, 0)), Time{});
  keeper.keeps = GENERATE(true, false);
  const bool shares = GENERATE(true, false);
  header.type = data::Type::kPushPull;
  header.flags = data::kAsync;
  header.samples = 1;
  std::vector<float> out(kMany);
  for (std::uint64_t n = 1; n <= 4; ++n) {
    header.round = Round(n);
    std::vector<float> gradient(kMany, 1);
    if (n == 2) gradient[kMany - 1] = std::numeric_limits<float>::infinity();
    SharedBuffers shared;
    if (shares) {
      header.flags |= data::kShared;
      shared.in = reinterpret_cast<const std::byte*>(gradient.data());
      if (n % 2 == 0) shared.out = reinterpret_cast<std::byte*>(out.data());
    }
    shard.handle(header, shares ? Payload() : ShardBench::bytes(gradient), Time{}, shared);
    if (shared.out) CHECK(out.front() == static_cast<float>(n));
    if (shared.out) CHECK(out[kMany - 2] == static_cast<float>(n));
  }
  CHECK(shard.nonfinite() == 1);
  std::erase(keeper.kept, nullptr);  // answers in shared memory
  if (!keeper.keeps) return;
  REQUIRE(keeper.kept.size() == (shares ? 2 : 4));
  for (std::size_t i = 0; i < keeper.kept.size(); ++i) {
    const auto values = ShardBench::floats(std::string(keeper.kept[i]->text()));
    CHECK(values == [&] {
      const std::size_t n = shares ? 2 * i + 1 : i + 1;
      std::vector<float> want(kMany, static_cast<float>(n));
      if (n >= 2) want.back() = std::numeric_limits<float>::infinity();
      return want;
    }());
  }
}

// Memory shared with a worker may have any address: the kernels need no alignment.
TEST_CASE("chunk value: gradients and places in shared memory need no alignment", "[shard]") {
  const bool deterministic = GENERATE(false, true);
  const auto optimizer = GENERATE(as<std::string>(), "", "sgd momentum=0.5", "adam");
  const bool is_async = GENERATE(false, true);
  CAPTURE(deterministic, optimizer, is_async);
  const auto run = [&](std::size_t offset) {
    ShardBench bench(deterministic);
    bench.commit(1, {0, 1});
    bench.init(0, 0);
    if (!optimizer.empty()) bench.set_optimizer(0, optimizer);
    const std::vector<float> gradient = {1, -2, 0.5f};
    std::vector<std::vector<std::byte>> in(2, std::vector<std::byte>(64));
    std::vector<std::vector<std::byte>> out = in;
    for (std::uint32_t w = 0; w < 2; ++w) {
      auto header = bench.push_header(w, 1);
      header.learning_rate = 0.5f;
      header.flags = data::kShared;
      if (is_async) header.flags |= data::kAsync;
      std::memcpy(in[w].data() + offset, gradient.data(), kElements * sizeof(float));
      SharedBuffers shared;
      shared.in = in[w].data() + offset;
      shared.out = out[w].data() + offset;
      bench.shard_.handle(header, {}, Time{}, shared);
    }
    std::vector<float> got(kElements);
    std::memcpy(got.data(), out[1].data() + offset, kElements * sizeof(float));
    return got;
  };
  CHECK(run(1) == run(0));
  CHECK(run(3) == run(0));
}

TEST_CASE("chunk value: elements that are not finite are counted, or refused by the worker's name",
          "[shard]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  ShardBench counts;
  counts.commit(1, {0, 1});
  counts.init(0, 0);
  counts.take();
  counts.say(counts.push_header(0, 1), ShardBench::bytes({1, nan, 1}));
  counts.say(counts.push_header(1, 1), ShardBench::bytes({1, 1, 1}));
  CHECK(counts.take().size() == 2);
  CHECK(counts.shard_.nonfinite() == 1);

  ShardOptions options = ShardBench::options();
  options.refuse_nonfinite = true;
  ShardBench refuses(options);
  refuses.commit(1, {0, 1});
  refuses.init(0, 0);
  refuses.take();
  refuses.say(refuses.push_header(1, 1), ShardBench::bytes({1, nan, 1}));
  CHECK(refuses.take().empty());
  // The round continues without it, and the worker gets that error, also if it sends again.
  refuses.push(0, 1, 2);
  auto answers = refuses.take();
  REQUIRE(answers.size() == 2);
  CHECK(ShardBench::code(answers[0]) == data::Code::kNonfinite);
  CHECK(answers[0].payload.find("worker 1") != std::string::npos);
  CHECK(refuses.value() == 2);
  refuses.push(1, 1, 3);
  CHECK(ShardBench::code(refuses.take().at(0)) == data::Code::kNonfinite);
  refuses.push(0, 2, 2);
  refuses.push(1, 2, 3);
  CHECK(refuses.take().size() == 2);
  CHECK(refuses.value() == 5);
}

TEST_CASE("chunk value: what is not finite in a compressed gradient is counted or refused as well",
          "[shard]") {
  const auto codec = GENERATE(data::Codec::kTwoBit, data::Codec::kFp16, data::Codec::kBf16);
  const float whole = 0.5f;  // leaves no residual
  const bool refuses = GENERATE(false, true);
  CAPTURE(name_of(codec), refuses);
  ShardOptions options = ShardBench::options();
  options.refuse_nonfinite = refuses;
  ShardBench bench(options);
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.take();
  const auto push = [&](std::uint32_t worker, float second) {
    GradientEncoder encoder;
    const float gradient[] = {whole, second, whole};
    const auto codes = encoder.encode({codec, 0.5f}, gradient, kElements, true);
    auto header = bench.push_header(worker, 1);
    data::set_codec(header, codec);
    bench.say(header,
              Payload(std::string_view(reinterpret_cast<const char*>(codes.data()), codes.size())));
  };
  push(1, std::numeric_limits<float>::quiet_NaN());
  CHECK(bench.take().empty());
  push(0, whole);
  const auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  if (refuses) {
    CHECK(ShardBench::code(answers[0]) == data::Code::kNonfinite);
    CHECK(answers[0].payload.find("worker 1") != std::string::npos);
  }
  CHECK(bench.shard_.nonfinite() == 1);
  CHECK(bench.value() == (refuses ? whole : 2 * whole));
}

TEST_CASE("chunk value: a threshold that is none is refused and changes nothing", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0});
  bench.init(0, 7);
  bench.take();
  for (const float threshold : {0.0f, -0.5f, std::numeric_limits<float>::quiet_NaN(),
                                std::numeric_limits<float>::infinity()}) {
    auto header = bench.push_header(0, 1);
    data::set_codec(header, data::Codec::kTwoBit);
    Payload payload(compressed_bytes(data::Codec::kTwoBit, kElements));
    std::memset(payload.data(), 0xff, payload.size());
    std::memcpy(payload.data(), &threshold, sizeof threshold);
    bench.say(header, std::move(payload));
    CHECK(ShardBench::code(bench.take().at(0)) == data::Code::kInvalid);
  }
  CHECK(bench.value() == 7);
}

TEST_CASE("chunk value: deterministic, the bits do not depend on the order of arrival",
          "[shard][property]") {
  const bool holds =
      rc::check("any order of contributions gives the same value", [](std::vector<float> values) {
        if (values.size() < 2 || values.size() > 8) return;
        const auto n = static_cast<std::uint32_t>(values.size());
        std::vector<std::uint32_t> order(n);
        for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
        // With unequal weights, and some in memory that a worker shares.
        const bool is_uneven = n % 2 == 0;
        const std::uint32_t shares = n % 3;
        auto result = [&] {
          ShardBench bench(true);
          bench.commit(1, order);
          bench.init(order.front(), 0);
          std::vector<std::vector<float>> memory(n);
          for (auto w : order) {
            auto header = bench.push_header(w, 1);
            header.reduce = data::Reduce::kMean;
            header.samples = is_uneven ? w % 3 + 1 : 7;
            memory[w].assign(kElements, values[w]);
            if (shares == 0 || w % shares != 0) {
              bench.say(header, ShardBench::bytes(memory[w]));
              continue;
            }
            SharedBuffers shared;
            shared.in = reinterpret_cast<const std::byte*>(memory[w].data());
            header.flags = data::kShared;
            bench.shard_.handle(header, {}, Time{}, shared);
          }
          const float out = bench.value();
          std::uint32_t bits = 0;
          std::memcpy(&bits, &out, sizeof bits);
          return bits;
        };
        const auto first = result();
        std::reverse(order.begin(), order.end());
        RC_ASSERT(result() == first);
        std::rotate(order.begin(), order.begin() + 1, order.end());
        RC_ASSERT(result() == first);
      });
  CHECK(holds);
}

TEST_CASE("chunk value: what is not finite in an only contribution is counted", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0});
  bench.init(0, 0);
  bench.push(0, 1, std::numeric_limits<float>::quiet_NaN());
  CHECK(bench.shard_.nonfinite() == kElements);
}

TEST_CASE("chunk value: statistics may be infinite, gradients may not", "[shard]") {
  ShardOptions options = ShardBench::options();
  options.refuse_nonfinite = true;
  const bool is_auxiliary = GENERATE(false, true);
  CAPTURE(is_auxiliary);
  ShardBench bench(options);
  bench.commit(1, {0, 1});
  bench.init(0, 0, is_auxiliary ? data::kAuxiliary : 0);
  bench.take();
  const float infinite = -std::numeric_limits<float>::infinity();
  bench.push(0, 1, infinite);
  bench.push(1, 1, infinite);
  const auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  for (const auto& answer : answers) {
    if (is_auxiliary)
      CHECK(ShardBench::floats(answer.payload) == std::vector<float>(kElements, infinite));
    else
      CHECK(ShardBench::code(answer) == data::Code::kNonfinite);
  }
  CHECK(bench.shard_.nonfinite() == (is_auxiliary ? 0 : 2 * kElements));
}

TEST_CASE("chunk value: a round in which nobody has samples is zeros, or no step", "[shard]") {
  const bool deterministic = GENERATE(false, true);
  const bool uses_optimizer = GENERATE(false, true);
  const std::uint8_t flags = GENERATE(std::uint8_t{0}, std::uint8_t{data::kAuxiliary});
  if (uses_optimizer && flags != 0) return;
  CAPTURE(deterministic, uses_optimizer, int{flags});
  ShardBench bench(deterministic);
  bench.commit(1, {0, 1});
  bench.init(0, 3, flags);
  if (uses_optimizer) bench.set_optimizer(0, "sgd");
  bench.take();
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const bool has_samples = round != 2;
    for (std::uint32_t w = 0; w < 2; ++w) {
      auto header = bench.push_header(w, round);
      header.samples = has_samples ? 1 : 0;
      header.reduce = data::Reduce::kMean;
      header.learning_rate = uses_optimizer ? 1.0F : 0.0F;
      bench.say(header, ShardBench::bytes({5, 5, 5}));
    }
    const auto answers = bench.take();
    REQUIRE(answers.size() == 2);
    const float steps = round < 3 ? 1 : 2;
    const float want = uses_optimizer ? 3 - 5 * steps : has_samples ? 5 : 0;
    for (const auto& answer : answers)
      CHECK(ShardBench::floats(answer.payload) == std::vector<float>(kElements, want));
  }
}

namespace {

/// What `workers` workers get of an auxiliary key to which each of them pushes `values`.
template <class T>
std::vector<T> exchanged(data::Dtype dtype, std::uint32_t workers, const std::vector<T>& values) {
  ShardBench bench;
  std::vector<std::uint32_t> ids(workers);
  for (std::uint32_t w = 0; w < workers; ++w) ids[w] = w;
  bench.commit(1, ids);
  const auto say = [&](data::Header header) {
    header.dtype = dtype;
    Payload payload(values.size() * sizeof(T));
    std::memcpy(payload.data(), values.data(), payload.size());
    bench.say(header, std::move(payload));
  };
  data::Header init;
  init.type = data::Type::kInit;
  init.samples = values.size();
  init.flags = data::kAuxiliary;
  say(init);
  bench.take();
  for (const std::uint32_t w : ids) say(bench.push_header(w, 1));
  const auto answers = bench.take();
  REQUIRE(answers.size() == workers);
  std::vector<T> got(values.size());
  for (const auto& answer : answers) {
    REQUIRE(answer.payload.size() == got.size() * sizeof(T));
    std::memcpy(got.data(), answer.payload.data(), answer.payload.size());
  }
  return got;
}

}  // namespace

TEST_CASE("chunk value: equal float32 numbers have themselves as the mean, exchanged as float64",
          "[shard]") {
  CHECK(rc::check([] {
    const auto workers = *rc::gen::inRange(2U, 12U);
    const auto bits =
        *rc::gen::container<std::vector<std::uint32_t>>(100, rc::gen::arbitrary<std::uint32_t>());
    std::vector<double> values = {std::numeric_limits<float>::max(),
                                  std::numeric_limits<float>::lowest(),
                                  std::numeric_limits<float>::denorm_min()};
    for (const std::uint32_t one : bits) {
      float value = 0;
      std::memcpy(&value, &one, sizeof value);
      if (value == value) values.push_back(double{value});
    }
    RC_ASSERT(exchanged(data::Dtype::kFloat64, workers, values) == values);
  }));
}

TEST_CASE("chunk value: integers of an auxiliary key are added exactly", "[shard]") {
  const std::vector<std::int64_t> values = {std::int64_t{1} << 59, -7, 9007199254740993};
  CHECK(exchanged(data::Dtype::kInt64, 3, values) ==
        std::vector<std::int64_t>{3 * (std::int64_t{1} << 59), -21, 3 * 9007199254740993});
}
