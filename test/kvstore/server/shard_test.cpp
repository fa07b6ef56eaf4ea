#include "kvstore/server/shard.h"

#include <algorithm>
#include <memory>

#include "kvstore/compute/compression.h"
#include "test/kvstore/server/shard_bench.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

namespace {

/// A shard with worker 0 in generation 1, and room for 1,000 bytes of future generations.
std::unique_ptr<Shard> shard_of_little_room(ShardBench& bench) {
  auto options = ShardBench::options();
  options.max_held_bytes = 1000;
  auto shard = std::make_unique<Shard>(options, bench);
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(0)};
  shard->commit(commit, Time{});
  return shard;
}

}  // namespace

TEST_CASE("shard: a fenced worker's push is refused and changes nothing", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.commit(2, {0});
  bench.take();
  bench.push(1, 1, 100);
  CHECK(ShardBench::code(bench.take().at(0)) == data::Code::kFenced);
  CHECK(bench.shard_.fenced() == 1);
  bench.push(0, 1, 5);
  CHECK(ShardBench::floats(bench.take().at(0).payload).at(0) == 5);
}

TEST_CASE("shard: it can tell who owes a contribution and who waits for others", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1, 2});
  bench.init(0, 0);
  const auto debts = [&bench] {
    std::pair<std::set<WorkerId>, std::set<WorkerId>> out;
    bench.shard_.add_debts(out.first, out.second);
    return out;
  };
  using Ids = std::set<WorkerId>;
  CHECK(debts() == std::pair(Ids{}, Ids{}));  // no worker began: no round waits
  bench.push(1, 1, 5);
  CHECK(debts() == std::pair(Ids{WorkerId(0), WorkerId(2)}, Ids{WorkerId(1)}));
  bench.finish(2, 0);  // its epoch is over: it owes nothing more
  CHECK(debts() == std::pair(Ids{WorkerId(0)}, Ids{WorkerId(1)}));
  bench.push(0, 1, 5);
  CHECK(debts() == std::pair(Ids{}, Ids{}));

  data::Header barrier;
  barrier.type = data::Type::kBarrier;
  barrier.worker = WorkerId(0);
  barrier.generation = Generation(1);
  barrier.round = Round(1);
  bench.say(barrier);
  CHECK(debts() == std::pair(Ids{WorkerId(1)}, Ids{WorkerId(0)}));
  bench.commit(2, {0, 2});  // a removed worker owes nothing
  CHECK(debts() == std::pair(Ids{}, Ids{}));
}

TEST_CASE("shard: it can tell in which key each waits, and for whom", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1, 2});
  bench.init(0, 0);
  CHECK(bench.shard_.waits().empty());
  bench.push(1, 1, 5);
  using Waits = std::vector<WaitingFor>;
  CHECK(bench.shard_.waits() == Waits{{WorkerId(1), KeyId(0), WorkerId(0), 1}});
  data::RegisterKeys fresh;
  fresh.keys.push_back({"new", 1, data::Dtype::kFloat32, 0});
  data::Header registers;
  registers.type = data::Type::kRegister;
  registers.worker = WorkerId(2);
  registers.generation = Generation(1);
  bench.say(registers, Payload(wire::body_of(fresh)));
  CHECK(bench.shard_.waits() == Waits{{WorkerId(1), KeyId(0), WorkerId(0), 1},
                                      {WorkerId(2), WaitingFor::kNoKey, WorkerId(0), 0}});
  std::set<WorkerId> owing;
  std::set<WorkerId> waiting;
  bench.shard_.add_debts(owing, waiting);
  CHECK(waiting == std::set{WorkerId(1), WorkerId(2)});
  data::Header barrier;
  barrier.type = data::Type::kBarrier;
  barrier.worker = WorkerId(0);
  barrier.generation = Generation(1);
  barrier.round = Round(1);
  bench.say(barrier);  // this refuses the new key
  CHECK(bench.shard_.waits() == Waits{{WorkerId(0), WaitingFor::kNoKey, WorkerId(1), 1},
                                      {WorkerId(1), KeyId(0), WorkerId(0), 1}});
}

TEST_CASE("shard: of many that wait one of each key is told", "[shard]") {
  std::vector<WaitingFor> waits;
  for (std::uint32_t i = 0; i < 100; ++i)
    waits.push_back({WorkerId(i), KeyId(i == 70 ? 2 : 1), WorkerId(0), 0});
  choose_waits(waits);
  REQUIRE(waits.size() == kMostWaits);
  CHECK(waits[0].worker == WorkerId(0));
  CHECK(waits[1].worker == WorkerId(70));
  CHECK(waits[2].worker == WorkerId(1));
}

TEST_CASE("shard: a resend is answered but counted once, before and after the round completes",
          "[shard]") {
  ShardBench bench;
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
  CHECK(ShardBench::floats(again[0].payload).at(0) == 3);
  CHECK(bench.value() == 3);
}

TEST_CASE("shard: a frame of a generation not learnt yet waits for the commit or a deadline",
          "[shard]") {
  ShardBench bench;
  bench.commit(1, {0});
  bench.init(0, 0);
  bench.take();
  bench.push(7, 1, 2, 2);
  bench.push(0, 1, 1, 2);
  CHECK(bench.take().empty());
  bench.commit(2, {0, 7}, 1);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 3);
  bench.push(0, 2, 1, 9);
  bench.shard_.expire(Time(std::chrono::seconds(9)));
  CHECK(bench.take().empty());
  bench.shard_.expire(Time(std::chrono::seconds(11)));
  CHECK(ShardBench::code(bench.take().at(0)) == data::Code::kUnavailable);
}

TEST_CASE("shard: requests that came to another loop take no more memory than its own", "[shard]") {
  ShardBench bench;
  const auto small = shard_of_little_room(bench);
  Shard& shard = *small;
  data::Header finish;
  finish.type = data::Type::kFinish;
  finish.generation = Generation(9);
  std::vector<ShardBench::Answer> refused;
  for (int i = 0; i < 1000 && refused.empty(); ++i) {
    shard.handle_unchecked(finish, {}, Time{});
    refused = bench.take();
  }
  REQUIRE(refused.size() == 1);
  CHECK(refused[0].header.type == data::Type::kFailed);
}

TEST_CASE("shard: frames of generations to come take bounded memory", "[shard]") {
  ShardBench bench;
  const auto small = shard_of_little_room(bench);
  Shard& shard = *small;
  data::Header header;
  header.type = data::Type::kInit;
  header.samples = kElements;
  shard.handle(header, ShardBench::bytes({0, 0, 0}), Time{});
  bench.take();
  header = bench.push_header(0, 1, 2);
  header.payload = kElements * sizeof(float);
  int held = 0;
  while (shard.check(header) && held < 1000) {
    shard.handle(header, ShardBench::bytes({1, 1, 1}), Time{});
    ++held;
  }
  CHECK(held > 0);
  CHECK(held < 100);
  CHECK(shard.check(header).error().kind == ErrorKind::kUnavailable);
  ServerCommit commit;
  commit.generation = Generation(2);
  commit.contributors = {WorkerId(0)};
  shard.commit(commit, Time{});
  CHECK(shard.check(header));
  CHECK(bench.take().size() == static_cast<std::size_t>(held));
}

TEST_CASE("shard: an older generation alone refuses nothing", "[shard]") {
  ShardBench bench;
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
  ShardBench bench;
  CHECK(bench.commit(3, {0, 1}) == Members::Applied::kYes);
  CHECK(bench.commit(3, {0, 1}) == Members::Applied::kSame);
  CHECK(bench.commit(2, {0}) == Members::Applied::kStale);
  ServerCommit commit;
  commit.term = Term(4);
  commit.generation = Generation(3);
  CHECK(bench.shard_.commit(commit, Time{}) == Members::Applied::kSame);
  commit.term = Term(3);
  commit.generation = Generation(9);
  CHECK(bench.shard_.commit(commit, Time{}) == Members::Applied::kStale);
}

TEST_CASE("shard: a boundary whose commit was never heard of ends the epoch all the same",
          "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1, 2});
  bench.init(0, 0);
  bench.finish(0, 0);
  bench.finish(1, 0);
  bench.take();
  // 2 died, epoch 1 began with 0, 1 and 3, and then 1 died: only the last commit arrives.
  bench.commit(4, {0, 3}, 1);
  bench.push(3, 1, 8, 4);
  CHECK(bench.take().empty());
  bench.push(0, 1, 4, 4);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 12);
}

TEST_CASE("shard: the first commit of an epoch that began without one is no boundary", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1, 2});
  bench.init(0, 0);
  for (std::uint32_t w = 0; w < 3; ++w) bench.finish(w, 0);
  bench.push(0, 1, 4);
  bench.take();
  bench.commit(2, {0, 1}, 1);  // 2 died in epoch 1
  CHECK(bench.take().empty());
  bench.push(1, 1, 8, 2);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 12);
}

TEST_CASE("rounds: workers that are no members any more are forgotten", "[shard]") {
  Members members;
  RoundMachine rounds;
  ServerCommit commit;
  for (std::uint32_t i = 0; i < 100; ++i) {
    commit.generation = commit.generation.next();
    commit.contributors = {WorkerId(i + 1), WorkerId(i)};
    members.apply(commit);
    rounds.forget(members.departed());
    for (const std::uint32_t w : {i + 1, i}) {
      const Round open = rounds.open();
      CHECK(rounds.admit(members, WorkerId(w), commit.generation, open) == Admission::kCounted);
      CHECK(rounds.admit(members, WorkerId(w), commit.generation, open) == Admission::kDuplicate);
    }
    REQUIRE(rounds.is_complete(members));
    rounds.advance();
    CHECK(rounds.remembered() == 2);
  }
}

TEST_CASE("shard: a boundary closes the rounds of the old epoch, so that none leaks into the next",
          "[shard]") {
  // Worker 0 has contributed and finished, worker 1 died without; one commit removes 1 and adds 2.
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  bench.push(0, 1, 4);
  bench.finish(0, 0);
  bench.take();
  bench.commit(2, {0, 2}, 1);
  CHECK(bench.take().size() == 1);
  CHECK(bench.value() == 4);
  bench.push(0, 2, 1, 2);
  CHECK(bench.take().empty());  // no worker has finished the new epoch
  bench.push(2, 2, 1, 2);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 2);
}

TEST_CASE("shard: finish marks are cleared once everybody finished, and old ones do nothing",
          "[shard]") {
  ShardBench bench;
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

TEST_CASE("shard: the optimizer belongs to the first who set it, and a newcomer may only agree",
          "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 10);
  bench.take();
  bench.set_optimizer(7, "sgd momentum=0.5");  // not a member: it waits until it is one
  CHECK(bench.take().empty());
  bench.set_optimizer(0, "sgd momentum=0.5");
  CHECK(bench.take().size() == 2);
  bench.set_optimizer(1, "sgd momentum=0.50 nesterov=0");
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
  bench.set_optimizer(1, "adam");
  CHECK(ShardBench::code(bench.take().at(0)) == data::Code::kMismatch);
  for (std::uint64_t round = 1; round <= 2; ++round) {
    for (std::uint32_t w = 0; w < 2; ++w) {
      auto header = bench.push_header(w, round);
      header.learning_rate = 1;
      bench.say(header, ShardBench::bytes(std::vector<float>(kElements, 1)));
    }
    bench.set_optimizer(7, "sgd momentum=0.5");
  }
  CHECK(bench.value() == 10 - 1 - 1.5f);
  bench.take();
  bench.set_optimizer(0, "sgd");
  CHECK(ShardBench::code(bench.take().at(0)) == data::Code::kMismatch);
}

TEST_CASE("shard: a compressed payload of the wrong size or for the wrong chunk is refused at once",
          "[shard]") {
  ShardBench bench;
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

// A worker whose connection breaks sends unanswered requests again. If the first request were also
// answered, on the new connection, the second one's answer would overwrite memory that the worker
// owns again.
TEST_CASE("shard: what was asked on a connection that ended is answered when it is asked again",
          "[shard]") {
  ShardBench bench;
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
  bench.shard_.disconnect(WorkerId(0));
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

TEST_CASE("shard: an optimizer is set between rounds, not in one", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 10);
  bench.push(0, 1, 1);
  bench.take();
  const auto flags = GENERATE(std::uint8_t{0}, std::uint8_t{data::kCheckOnly});
  bench.set_optimizer(1, "sgd", flags);
  const auto refused = bench.take();
  CHECK(ShardBench::code(refused.at(0)) == data::Code::kInvalid);
  CHECK(refused[0].payload.find("before the first push") != std::string::npos);
  bench.push(1, 1, 2);
  CHECK(bench.value() == 3);  // both by the same rule: the sum
  bench.take();
  bench.set_optimizer(1, "sgd");
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
  for (std::uint32_t w = 0; w < 2; ++w) {
    auto header = bench.push_header(w, 2);
    header.learning_rate = 1;
    bench.say(header, ShardBench::bytes({1, 1, 1}));
    bench.set_optimizer(w, "sgd");  // the one that is set: no harm in a round
  }
  CHECK(bench.value() == 2);
}

TEST_CASE("shard: a round of statistics is no reason to refuse an optimizer", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0, data::kAuxiliary);
  bench.push(0, 1, 1);
  bench.take();
  bench.set_optimizer(1, "sgd");
  CHECK(bench.take().at(0).header.type == data::Type::kDone);
}

TEST_CASE("shard: workers with different parameters are told apart at the first boundary",
          "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1, 2});
  const auto wants = [&bench](std::uint32_t worker, std::vector<std::string> names) {
    data::RegisterKeys keys;
    for (auto& name : names) keys.keys.push_back({std::move(name), kElements, {}, 0});
    data::Header header;
    header.type = data::Type::kRegister;
    header.worker = WorkerId(worker);
    bench.say(header, Payload(wire::body_of(keys)));
  };
  const auto at_boundary = [&bench](std::uint32_t worker, std::uint64_t phase) {
    data::Header header;
    header.type = data::Type::kFinish;
    header.worker = WorkerId(worker);
    header.flags = data::kAtBoundary;
    header.round = Round(phase);
    header.step = phase + 1;
    bench.say(header);
  };
  const auto why = [](const ShardBench::Answer& answer) {
    CHECK(ShardBench::code(answer) == data::Code::kMismatch);
    return wire::parse<data::Failure>(answer.payload)->message;
  };
  wants(1, {"a", "c"});
  wants(7, {"a", "c"});  // a newcomer, which nobody waits for
  CHECK(bench.take().empty());
  wants(0, {"a", "b"});
  wants(2, {"a"});
  CHECK(bench.take().size() == 2);

  SECTION("a key that nobody will create") {
    at_boundary(0, 0);
    const auto refused = bench.take();
    REQUIRE(refused.size() == 2);
    CHECK(refused[0].header.type == data::Type::kDone);
    CHECK(refused[1].to == WorkerId(1));
    const std::string wanted =
        "key 'c': worker 1 initialises it, and worker 0, which has rank 0, waits at the epoch "
        "boundary without it; it has 'b', which worker 1 has not: all workers initialise the same "
        "keys";
    CHECK(why(refused[1]) == wanted);
    wants(1, {"c"});  // after it as well
    CHECK(why(bench.take().at(0)) == wanted);
  }
  SECTION("... and one that is created after the others' boundary") {
    bench.finish(0, 0);  // not at a boundary yet: it may still create keys
    bench.take();
    wants(0, {"c"});
    CHECK(bench.take().size() == 3);
  }
  SECTION("... at a barrier") {
    data::Header barrier;
    barrier.type = data::Type::kBarrier;
    barrier.generation = Generation(1);
    barrier.round = Round(1);
    bench.say(barrier);
    CHECK(why(bench.take().at(0)).find("waits at the barrier without it") != std::string::npos);
  }
  SECTION("... if its creator leaves, the next one creates it") {
    at_boundary(0, 0);
    bench.take();
    wants(1, {"c"});
    bench.take();
    bench.commit(2, {1, 2});
    wants(1, {"c"});
    CHECK(bench.take().at(0).header.type == data::Type::kDone);
  }
  SECTION("a key that another worker lacks") {
    bench.commit(2, {0, 2});
    at_boundary(2, 0);
    at_boundary(0, 0);
    bench.take();
    data::Header sync;
    sync.type = data::Type::kSync;
    bench.say(sync);
    CHECK(bench.take().at(0).header.type == data::Type::kDone);
    sync.worker = WorkerId(2);
    bench.say(sync);
    CHECK(why(bench.take().at(0)) ==
          "key 'b': worker 0, which had rank 0, has initialised it before the first epoch "
          "boundary, and worker 2 has not: all workers initialise the same keys");
    wants(0, {"later"});
    at_boundary(0, 1);
    bench.take();
    wants(2, {"c"});
    CHECK(why(bench.take().at(0)).find("key 'c'") == 0);
  }
}

TEST_CASE("shard: asynchronous pushes count from where the worker began, one by one", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  const auto push = [&](std::uint32_t worker, std::uint64_t number) {
    auto header = bench.push_header(worker, number);
    header.flags = data::kAsync;
    bench.take();
    bench.say(header, ShardBench::bytes({1, 1, 1}));
    return bench.take().at(0);
  };
  const auto is_taken = [&](std::uint32_t worker, std::uint64_t number) {
    const float before = bench.value();
    return push(worker, number).header.type == data::Type::kValue && bench.value() == before + 1;
  };
  const auto is_refused = [&](std::uint32_t worker, std::uint64_t number) {
    const float before = bench.value();
    const auto answer = push(worker, number);
    CHECK(ShardBench::code(answer) == data::Code::kInvalid);
    return bench.value() == before;
  };
  constexpr auto kLast = ~std::uint64_t{0};
  CHECK(is_taken(0, 1));
  CHECK(is_refused(0, 1000));
  CHECK(is_refused(0, kLast));
  CHECK(is_taken(0, 2));
  CHECK_FALSE(is_taken(0, 2));  // sent again
  CHECK(is_taken(1, kLast));    // a worker with an absurd number harms only itself
  CHECK_FALSE(is_taken(1, 1));
  CHECK(is_taken(0, 3));
}

TEST_CASE("shard: an asynchronous push that was refused is refused when it is asked again",
          "[shard]") {
  auto options = ShardBench::options();
  options.refuse_nonfinite = true;
  ShardBench bench(options);
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  const auto push = [&](std::uint32_t worker, std::uint64_t number, float value) {
    auto header = bench.push_header(worker, number);
    header.flags = data::kAsync;
    bench.take();
    bench.say(header, ShardBench::bytes({value, 1, 1}));
    return bench.take().at(0);
  };
  for (int time = 0; time < 3; ++time) {
    CHECK(ShardBench::code(push(0, 1, INFINITY)) == data::Code::kNonfinite);
    if (time == 1) CHECK(push(1, 1, 5).header.type == data::Type::kValue);
  }
  CHECK(push(0, 2, 1).header.type == data::Type::kValue);
  CHECK(bench.value() == 6);
}

TEST_CASE("shard: who has a key created that there is learns its open round", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  CHECK(bench.take().at(0).header.round == Round(1));
  bench.finish(1, 0);
  for (std::uint64_t round = 1; round <= 3; ++round) bench.push(0, round, 1);
  bench.take();
  bench.init(1, 0);
  CHECK(bench.take().at(0).header.round == Round(4));
}

TEST_CASE("shard: asynchronous pushes leave the synchronous rounds alone", "[shard]") {
  ShardBench bench;
  bench.commit(1, {0, 1});
  bench.init(0, 0);
  auto mad = bench.push_header(1, ~std::uint64_t{0});
  mad.flags = data::kAsync;
  bench.say(mad, ShardBench::bytes({0, 0, 0}));
  bench.take();
  bench.push(0, 1, 1);
  CHECK(bench.take().empty());
  bench.push(1, 1, 2);
  CHECK(bench.take().size() == 2);
  CHECK(bench.value() == 3);
}
