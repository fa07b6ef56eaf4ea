#include "kvstore/shard.h"

#include <rapidcheck.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include "kvstore/compression.h"
#include "kvstore/reduce.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

constexpr std::size_t kElements = 3;

/// A shard, and what it answered to whom.
class Bench : public Answers {
 public:
  struct Answer {
    WorkerId to;
    data::Header header;
    std::string payload;
  };

  explicit Bench(bool deterministic = false) : Bench(options(deterministic)) {}
  explicit Bench(ShardOptions options) : shard_(options, *this) {}
  static ShardOptions options(bool deterministic = false) {
    ShardOptions options;
    options.deterministic = deterministic;
    options.is_registrar = true;
    options.hold_limit = std::chrono::seconds(10);
    return options;
  }

  void answer(WorkerId to, const data::Header& header,
              std::shared_ptr<const Payload> payload) override {
    answers.push_back({to, header, payload ? std::string(payload->text()) : std::string()});
  }
  /// The answers since the last call.
  std::vector<Answer> take() { return std::exchange(answers, {}); }

  Members::Adopted commit(std::uint64_t generation, std::vector<std::uint32_t> workers,
                          bool boundary = false) {
    ServerCommit commit;
    commit.generation = Generation(generation);
    commit.boundary = boundary;
    for (auto w : workers) commit.contributors.push_back(WorkerId(w));
    return shard_.commit(commit, Time{});
  }
  void say(data::Header header, Payload payload = {}, Time now = Time{}) {
    header.request = ++requests;
    header.payload = static_cast<std::uint32_t>(payload.size());
    shard_.handle(header, std::move(payload), now);
  }
  static Payload bytes(const std::vector<float>& values) {
    Payload payload(values.size() * sizeof(float));
    std::memcpy(payload.data(), values.data(), payload.size());
    return payload;
  }
  static std::vector<float> floats(const std::string& payload) {
    std::vector<float> out(payload.size() / sizeof(float));
    std::memcpy(out.data(), payload.data(), payload.size());
    return out;
  }
  void init(std::uint32_t worker, float value, std::uint8_t flags = 0) {
    data::Header header;
    header.type = data::Type::kInit;
    header.worker = WorkerId(worker);
    header.samples = kElements;
    header.flags = flags;
    say(header, bytes(std::vector<float>(kElements, value)));
  }
  data::Header push_header(std::uint32_t worker, std::uint64_t round,
                           std::uint64_t generation = 1) {
    data::Header header;
    header.type = data::Type::kPushPull;
    header.worker = WorkerId(worker);
    header.round = Round(round);
    header.generation = Generation(generation);
    header.samples = 1;
    return header;
  }
  void push(std::uint32_t worker, std::uint64_t round, float value, std::uint64_t generation = 1) {
    say(push_header(worker, round, generation), bytes(std::vector<float>(kElements, value)));
  }
  void finish(std::uint32_t worker, std::uint64_t phase) {
    data::Header header;
    header.type = data::Type::kFinish;
    header.worker = WorkerId(worker);
    header.round = Round(phase);
    say(header);
  }
  void set_optimizer(std::uint32_t worker, const std::string& spec) {
    data::Header header;
    header.type = data::Type::kSetOptimizer;
    header.worker = WorkerId(worker);
    say(header, Payload(spec));
  }
  float value() {
    data::Header header;
    header.type = data::Type::kPull;
    header.worker = WorkerId(99);
    say(header);
    const auto got = floats(answers.back().payload);
    answers.pop_back();
    return got.at(0);
  }
  static data::Code code(const Answer& answer) {
    REQUIRE(answer.header.type == data::Type::kFailed);
    return wire::parse<data::Failure>(answer.payload)->code;
  }

  std::vector<Answer> answers;
  Shard shard_;
  std::uint64_t requests = 0;
};

}  // namespace

TEST_CASE("shard: a fenced worker's push is refused and changes nothing", "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.commit(2, {0});
  bench.take();
  bench.push(1, 1, 100);
  CHECK(Bench::code(bench.take().at(0)) == data::Code::kFenced);
  bench.push(0, 1, 5);
  CHECK(Bench::floats(bench.take().at(0).payload).at(0) == 5);
}

TEST_CASE("shard: a resend is answered but counted once, before and after the round completes",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.take();
  bench.push(0, 1, 1);
  bench.push(0, 1, 1);
  CHECK(bench.take().empty());
  bench.push(1, 1, 2);
  CHECK(bench.take().size() == 2);  // one answer per worker, not per frame
  bench.push(0, 1, 1);
  const auto again = bench.take();
  REQUIRE(again.size() == 1);
  CHECK(Bench::floats(again[0].payload).at(0) == 3);
  CHECK(bench.value() == 3);
}

TEST_CASE("shard: a frame of a generation not learnt yet waits for the commit or a deadline",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0});
  bench.init(0, 0);
  bench.take();
  bench.push(7, 1, 2, 2);
  bench.push(0, 1, 1, 2);
  CHECK(bench.take().empty());
  bench.commit(2, {0, 7}, true);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 3);
  bench.push(0, 2, 1, 9);
  bench.shard_.expire(Time(std::chrono::seconds(9)));
  CHECK(bench.take().empty());
  bench.shard_.expire(Time(std::chrono::seconds(11)));
  CHECK(Bench::code(bench.take().at(0)) == data::Code::kTimeout);
}

TEST_CASE("shard: frames of generations to come take bounded memory", "[shard]") {
  Bench bench;
  auto options = Bench::options();
  options.max_held_bytes = 1000;
  Shard shard(options, bench);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0)};
  shard.commit(commit, Time{});
  data::Header header;
  header.type = data::Type::kInit;
  header.samples = kElements;
  shard.handle(header, Bench::bytes({0, 0, 0}), Time{});
  bench.take();
  header = bench.push_header(0, 1, 2);
  header.payload = kElements * sizeof(float);
  int held = 0;
  while (shard.check(header) && held < 1000) {
    shard.handle(header, Bench::bytes({1, 1, 1}), Time{});
    ++held;
  }
  CHECK(held > 0);
  CHECK(held < 100);
  CHECK(shard.check(header).error().kind == ErrorKind::kUnavailable);
  commit.generation = Generation(2);
  shard.commit(commit, Time{});
  CHECK(shard.check(header));
  CHECK(bench.take().size() == static_cast<std::size_t>(held));
}

TEST_CASE("shard: an older generation alone refuses nothing", "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.commit(5, {0, 1});
  bench.take();
  bench.push(0, 1, 1, 1);
  bench.push(1, 1, 1, 5);
  CHECK(bench.take().size() == 2);
}

TEST_CASE("shard: a commit of a lower term or generation is refused, the same one is not",
          "[shard]") {
  Bench bench;
  CHECK(bench.commit(3, {0, 1}) == Members::Adopted::kYes);
  CHECK(bench.commit(3, {0, 1}) == Members::Adopted::kSame);
  CHECK(bench.commit(2, {0}) == Members::Adopted::kStale);
  ServerCommit commit;
  commit.term = Term(4);
  commit.generation = Generation(3);
  CHECK(bench.shard_.commit(commit, Time{}) == Members::Adopted::kSame);
  commit.term = Term(3);
  commit.generation = Generation(9);
  CHECK(bench.shard_.commit(commit, Time{}) == Members::Adopted::kStale);
}

TEST_CASE("shard: a boundary closes the rounds of the old epoch, so that none leaks into the next",
          "[shard]") {
  // Worker 0 has contributed and finished, worker 1 died without; one commit removes 1 and adds 2.
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.push(0, 1, 4);
  bench.finish(0, 0);
  bench.take();
  bench.commit(2, {0, 2}, true);
  CHECK(bench.take().size() == 1);
  CHECK(bench.value() == 4);
  bench.push(0, 2, 1, 2);
  CHECK(bench.take().empty());  // nobody has finished the new epoch
  bench.push(2, 2, 1, 2);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 2);
}

TEST_CASE("shard: finish marks are cleared once everybody finished, and old ones do nothing",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.finish(0, 0);
  bench.finish(1, 0);
  bench.finish(0, 0);  // sent again after a reconnection
  bench.take();
  CHECK(bench.shard_.members().phase() == 1);
  bench.push(1, 1, 1);
  CHECK(bench.take().empty());
  bench.finish(0, 1);
  CHECK(bench.take().size() == 2);
}

TEST_CASE("shard: the optimizer belongs to the first who set it; a newcomer may only agree",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 10);
  bench.take();
  bench.set_optimizer(7, "sgd momentum=0.5");  // not a member: waits until there is one
  CHECK(bench.take().empty());
  bench.set_optimizer(0, "sgd momentum=0.5");
  CHECK(bench.take().size() == 2);
  bench.set_optimizer(1, "sgd momentum=0.50 nesterov=0");
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
  bench.set_optimizer(1, "adam");
  CHECK(Bench::code(bench.take().at(0)) == data::Code::kMismatch);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    for (std::uint32_t w = 0; w < 2; ++w) {
      auto header = bench.push_header(w, round);
      header.learning_rate = 1;
      bench.say(header, Bench::bytes(std::vector<float>(kElements, 1)));
    }
    bench.set_optimizer(7, "sgd momentum=0.5");
  }
  CHECK(bench.value() == 10 - 1 - 1.5f);
  bench.take();
  bench.set_optimizer(0, "sgd");
  CHECK(Bench::code(bench.take().at(0)) == data::Code::kMismatch);
}

TEST_CASE("shard: learning rates that differ are an error naming both, to both", "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.set_optimizer(0, "sgd");
  bench.take();
  for (std::uint32_t w = 0; w < 2; ++w) {
    auto header = bench.push_header(w, 1);
    header.learning_rate = w == 0 ? 0.25f : 0.5f;
    bench.say(header, Bench::bytes({1, 1, 1}));
  }
  const auto answers = bench.take();
  REQUIRE(answers.size() == 2);
  for (const auto& answer : answers) {
    CHECK(Bench::code(answer) == data::Code::kMismatch);
    CHECK(answer.payload.find("0.25") != std::string::npos);
    CHECK(answer.payload.find("0.5") != std::string::npos);
  }
  CHECK(bench.value() == 0);
}

TEST_CASE("shard: an answer being sent keeps its values while the next round is computed",
          "[shard]") {
  class Keeper : public Answers {
   public:
    void answer(WorkerId, const data::Header&, std::shared_ptr<const Payload> p) override {
      kept.push_back(std::move(p));
    }
    std::vector<std::shared_ptr<const Payload>> kept;
  } keeper;
  Shard shard(Bench::options(), keeper);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0)};
  shard.commit(commit, Time{});
  data::Header header;
  header.type = data::Type::kInit;
  header.samples = kElements;
  shard.handle(header, Bench::bytes({0, 0, 0}), Time{});
  header.type = data::Type::kPushPull;
  header.samples = 1;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    header.round = Round(round);
    const auto v = static_cast<float>(round);
    shard.handle(header, Bench::bytes({v, v, v}), Time{});
  }
  for (std::size_t round = 1; round <= 3; ++round)
    CHECK(Bench::floats(std::string(keeper.kept.at(round)->text())).at(0) ==
          static_cast<float>(round));
}

TEST_CASE("shard: elements that are not finite are counted, or refused by the worker's name",
          "[shard]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Bench counts;
  counts.commit(1, {0, 1});
  counts.init(0, 0);
  counts.take();
  counts.say(counts.push_header(0, 1), Bench::bytes({1, nan, 1}));
  counts.say(counts.push_header(1, 1), Bench::bytes({1, 1, 1}));
  CHECK(counts.take().size() == 2);
  CHECK(counts.shard_.nonfinite() == 1);

  ShardOptions options = Bench::options();
  options.refuse_nonfinite = true;
  Bench refuses(options);
  refuses.commit(1, {0, 1});
  refuses.init(0, 0);
  refuses.take();
  refuses.say(refuses.push_header(1, 1), Bench::bytes({1, nan, 1}));
  const auto answers = refuses.take();
  REQUIRE(answers.size() == 1);
  CHECK(Bench::code(answers[0]) == data::Code::kInvalid);
  CHECK(answers[0].payload.find("worker 1") != std::string::npos);
  // Nothing of it counts, and the worker may try again.
  refuses.push(0, 1, 2);
  CHECK(refuses.take().empty());
  refuses.push(1, 1, 3);
  CHECK(refuses.take().size() == 2);
  CHECK(refuses.value() == 5);
}

TEST_CASE("shard: a compressed payload of the wrong size or for the wrong chunk is refused at once",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  for (const auto codec : {data::Codec::kTwoBit, data::Codec::kFp16, data::Codec::kBf16}) {
    auto header = bench.push_header(0, 1);
    data::set_codec(header, codec);
    CHECK(data::codec_of(header) == codec);
    const auto size = static_cast<std::uint32_t>(compressed_bytes(codec, kElements));
    CHECK(size == (codec == data::Codec::kTwoBit ? 12 : 6));
    for (const std::uint32_t payload : {size, 0u, size - 1, size + 1, 12u * 4}) {
      header.payload = payload;
      CHECK(bench.shard_.check(header).has_value() == (payload == size));
    }
    header.payload = size;
    header.key = KeyId(1);
    CHECK_FALSE(bench.shard_.check(header));
  }
  for (const bool auxiliary : {true, false}) {
    data::Header header;
    header.type = data::Type::kInit;
    header.key = KeyId(auxiliary ? 1 : 2);
    header.samples = 2;
    if (auxiliary) header.flags = data::kAuxiliary;
    if (!auxiliary) header.dtype = data::Dtype::kFloat64;
    bench.say(header, Payload(auxiliary ? 8 : 16));
    header.type = data::Type::kPush;
    header.flags = 0;
    header.payload = auxiliary ? 8 : 16;
    CHECK(bench.shard_.check(header));
    data::set_codec(header, data::Codec::kTwoBit);
    header.payload = 12;
    CHECK_FALSE(bench.shard_.check(header));
  }
}

TEST_CASE("shard: what is not finite in a compressed gradient is counted or refused as well",
          "[shard]") {
  const auto codec = GENERATE(data::Codec::kTwoBit, data::Codec::kFp16, data::Codec::kBf16);
  const bool refuses = GENERATE(false, true);
  CAPTURE(name_of(codec), refuses);
  ShardOptions options = Bench::options();
  options.refuse_nonfinite = refuses;
  Bench bench(options);
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.take();
  const auto push = [&](std::uint32_t worker, float second) {
    GradientEncoder encoder;
    const float gradient[] = {0.5f, second, 0.5f};
    const auto codes = encoder.encode({codec, 0.5f}, gradient, kElements, true);
    auto header = bench.push_header(worker, 1);
    data::set_codec(header, codec);
    bench.say(header,
              Payload(std::string_view(reinterpret_cast<const char*>(codes.data()), codes.size())));
  };
  push(1, std::numeric_limits<float>::quiet_NaN());
  if (refuses) {
    const auto answers = bench.take();
    REQUIRE(answers.size() == 1);
    CHECK(Bench::code(answers[0]) == data::Code::kInvalid);
    CHECK(answers[0].payload.find("worker 1") != std::string::npos);
    push(1, 0.5f);
  }
  CHECK(bench.take().empty());
  push(0, 0.5f);
  CHECK(bench.take().size() == 2);
  CHECK(bench.shard_.nonfinite() == 1);
  CHECK(bench.value() == 1);
}

TEST_CASE("shard: a threshold that is none is refused and changes nothing", "[shard]") {
  Bench bench;
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
    CHECK(Bench::code(bench.take().at(0)) == data::Code::kInvalid);
  }
  CHECK(bench.value() == 7);
}

TEST_CASE("reduce: deterministic, the bits do not depend on the order of arrival",
          "[shard][property]") {
  const bool holds =
      rc::check("any order of contributions gives the same value", [](std::vector<float> values) {
        if (values.size() < 2 || values.size() > 8) return;
        const auto n = static_cast<std::uint32_t>(values.size());
        std::vector<std::uint32_t> order(n);
        for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
        auto result = [&] {
          Bench bench(true);
          bench.commit(1, order);
          bench.init(order.front(), 0);
          for (auto w : order) bench.push(w, 1, values[w]);
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

TEST_CASE("rounds: any interleaving of contributions, resends, finishes and commits is sound",
          "[shard][property]") {
  // A second, simpler account of what must hold: every worker adds its own power of two, so a
  // round's value says exactly whose contributions it has.
  const bool holds = rc::check(
      "nothing is lost or doubled and every round ends",
      [](const std::vector<std::uint8_t>& script) {
        constexpr std::uint32_t kWorkers = 4;
        Bench bench;
        std::uint64_t generation = 1;
        std::set<std::uint32_t> members;
        for (std::uint32_t w = 0; w < kWorkers; ++w) members.insert(w);
        bench.commit(generation, {members.begin(), members.end()}, true);
        bench.init(0, 0);
        bench.take();

        std::uint64_t open = 1;
        std::set<std::uint32_t> in;        // counted in the open round
        std::set<std::uint32_t> finished;  // this epoch
        std::uint64_t phase = 0;
        std::map<std::uint32_t, std::uint64_t> last;  // each worker's last counted round
        auto settle = [&] {
          // Answers must come exactly when the open round is due, with exactly the counted
          // ones in.
          const bool due = !in.empty() && std::all_of(members.begin(), members.end(), [&](auto w) {
            return in.count(w) || finished.count(w);
          });
          float want = 0;
          for (auto w : in) want += static_cast<float>(1u << w);
          std::set<std::uint32_t> told;
          for (const auto& answer : bench.take()) {
            if (answer.header.type != data::Type::kValue || answer.header.round.value != open)
              continue;
            RC_ASSERT(due);
            RC_ASSERT(Bench::floats(answer.payload).at(0) == want);
            RC_ASSERT(told.insert(answer.to.value).second);
          }
          if (due) {
            RC_ASSERT(told == in);
            ++open;
            in.clear();
          }
          const bool all =
              !finished.empty() && std::all_of(members.begin(), members.end(),
                                               [&](auto w) { return finished.count(w) > 0; });
          if (all) {
            finished.clear();
            ++phase;
          }
        };
        for (const auto byte : script) {
          const std::uint32_t w = byte % kWorkers;
          switch (byte / kWorkers % 8) {
            case 0:
            case 1:
            case 2:
            case 3:  // the next contribution, or a resend of the present one
              if (members.count(w) && !finished.count(w)) {
                bench.push(w, open, static_cast<float>(1u << w), generation - byte % 2);
                in.insert(w);
                last[w] = open;
              } else if (!members.count(w)) {
                bench.push(w, open, 1000, generation);
                const auto answers = bench.take();
                RC_ASSERT(answers.size() == 1u);
                RC_ASSERT(Bench::code(answers[0]) == data::Code::kFenced);
              }
              break;
            case 4:  // a resend of an old one
              if (members.count(w) && last.count(w) && last[w] < open) {
                bench.push(w, last[w], static_cast<float>(1u << w), generation);
                const auto answers = bench.take();
                RC_ASSERT(answers.size() == 1u);
                RC_ASSERT(answers[0].header.type == data::Type::kValue);
              }
              break;
            case 5:
            case 6:
              if (members.count(w)) {
                bench.finish(w, byte % 2 ? phase : phase == 0 ? 0 : phase - 1);
                if (byte % 2 || phase == 0) finished.insert(w);
              }
              break;
            case 7:  // death
              if (members.size() > 1 && members.count(w)) {
                members.erase(w);
                finished.erase(w);
                bench.commit(++generation, {members.begin(), members.end()}, false);
              }
              break;
          }
          settle();
        }
        // Liveness: when every live worker contributes, the round ends.
        for (auto w : members) {
          if (finished.count(w) || in.count(w)) continue;
          bench.push(w, open, static_cast<float>(1u << w), generation);
          in.insert(w);
        }
        if (!in.empty()) {
          const auto before = open;
          settle();
          RC_ASSERT(open == before + 1);
        }
      });
  CHECK(holds);
}

// A worker whose connection breaks sends again what has no answer. Were the first request answered
// as well, by the new connection, the second one's answer would overwrite memory that is the
// worker's again.
TEST_CASE("shard: what was asked on a connection that ended is answered when it is asked again",
          "[shard]") {
  Bench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.take();
  std::vector<float> memory(kElements, 1);
  SharedBuffers in_place;
  in_place.in = reinterpret_cast<const std::byte*>(memory.data());
  in_place.out = reinterpret_cast<std::byte*>(memory.data());
  const bool is_held = GENERATE(false, true);
  auto header = bench.push_header(0, 1, is_held ? 2 : 1);
  header.flags = data::kShared;
  bench.shard_.handle(header, {}, Time{}, in_place);
  bench.shard_.forget_requests(WorkerId(0));
  if (is_held) bench.commit(2, {0, 1});
  bench.push(1, 1, 10);
  if (!is_held) {
    REQUIRE(bench.answers.size() == 1);
    CHECK(bench.take()[0].to == WorkerId(1));
  }
  CHECK(memory == std::vector<float>(kElements, 1));
  bench.shard_.handle(header, {}, Time{}, in_place);
  const auto answers = bench.take();
  REQUIRE_FALSE(answers.empty());
  CHECK(std::count_if(answers.begin(), answers.end(),
                      [](const auto& a) { return a.to == WorkerId(0); }) == 1);
  CHECK(memory == std::vector<float>(kElements, 11));
}

TEST_CASE("shard: what is not finite in an only contribution is counted", "[shard]") {
  Bench bench;
  bench.commit(1, {0});
  bench.init(0, 0);
  bench.push(0, 1, std::numeric_limits<float>::quiet_NaN());
  CHECK(bench.shard_.nonfinite() == kElements);
}
