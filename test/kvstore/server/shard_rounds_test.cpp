#include "kvstore/server/shard_rounds.h"

#include "test/kvstore/server/recorded_answers.h"

using namespace dt;
using namespace dt::kv;
using namespace dt::test;

namespace {

constexpr std::size_t kBytes = 2 * sizeof(float);

Time at(int second) { return Time(std::chrono::seconds(second)); }

/// Rounds of two chunks, whose workers push ones.
struct RoundsBench {
  explicit RoundsBench(std::vector<std::uint32_t> workers) {
    commit(std::move(workers));
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
      Payload zeros(kBytes);
      std::memset(zeros.data(), 0, kBytes);
      data::Header header;
      header.chunk = chunk;
      header.samples = 2;
      REQUIRE(chunks.add(header, chunk == 1, {{std::move(zeros)}}).empty());
    }
  }
  void commit(std::vector<std::uint32_t> workers) {
    ServerCommit commit;
    commit.generation = members.generation().next();
    for (const auto worker : workers) commit.contributors.emplace_back(worker);
    members.apply(commit);
  }
  data::Header header(std::uint32_t worker, std::uint64_t round, std::uint32_t chunk = 0) {
    data::Header header;
    header.type = data::Type::kPushPull;
    header.worker = WorkerId(worker);
    header.generation = members.generation();
    header.round = Round(round);
    header.chunk = chunk;
    header.reduce = data::Reduce::kSum;
    header.samples = 1;
    return header;
  }
  void push(std::uint32_t worker, std::uint64_t round, std::uint32_t chunk = 0, int second = 0) {
    Payload ones(kBytes);
    const std::vector<float> values{1, 1};
    std::memcpy(ones.data(), values.data(), kBytes);
    const auto push = header(worker, round, chunk);
    rounds.push(chunks.find(push), push, std::move(ones), {}, at(second));
  }
  void enter_barrier(std::uint32_t worker, std::uint64_t round) {
    auto enters = header(worker, round);
    enters.type = data::Type::kBarrier;
    rounds.enter_barrier(enters);
  }
  std::vector<RecordedAnswers::Answer> take() { return std::exchange(answers.all, {}); }

  RecordedAnswers answers;
  ShardContext context{ComputeOptions{}};
  Members members;
  Chunks chunks{context, answers};
  Rounds rounds{context, members, answers};
  PendingRequests pending{{}};
};

}  // namespace

TEST_CASE("shard rounds: those of a part that is finished complete, the others at the epoch's end",
          "[rounds]") {
  RoundsBench bench({0, 1});
  CHECK(bench.rounds.is_between_rounds());
  bench.push(0, 1, 0);
  bench.push(0, 1, 1);
  CHECK_FALSE(bench.rounds.is_between_rounds());
  bench.rounds.recheck(false);
  CHECK(bench.take().empty());
  bench.members.finish(WorkerId(1), 0, Epoch(1), Members::Part::kSteps);
  bench.rounds.recheck(false);
  const auto first = bench.take();
  REQUIRE(first.size() == 1);
  CHECK(first[0].header.chunk == 0);
  CHECK(floats_of(first[0].payload) == std::vector<float>{1, 1});
  CHECK(bench.rounds.is_between_rounds());  // the other chunk is no parameter
  bench.rounds.recheck(true);
  const auto second = bench.take();
  REQUIRE(second.size() == 1);
  CHECK(second[0].header.chunk == 1);
  bench.rounds.recheck(true);
  CHECK(bench.take().empty());
}

TEST_CASE("shard rounds: the barrier opens when all are there, and for those that stay",
          "[rounds]") {
  RoundsBench bench({3, 1, 2});
  bench.enter_barrier(1, 1);
  bench.enter_barrier(1, 1);  // again
  CHECK_FALSE(bench.rounds.first_is_at_barrier());
  bench.enter_barrier(3, 1);
  CHECK(bench.rounds.first_is_at_barrier());
  CHECK(bench.take().empty());
  CHECK(bench.rounds.barrier() == Round(1));
  bench.enter_barrier(2, 1);
  CHECK(bench.take().size() == 3);
  CHECK_FALSE(bench.rounds.first_is_at_barrier());
  CHECK(bench.rounds.barrier() == Round(2));
  bench.enter_barrier(1, 1);  // its answer was lost
  REQUIRE(bench.answers.all.size() == 1);
  CHECK(bench.take()[0].header.type == data::Type::kDone);
  bench.enter_barrier(7, 2);
  CHECK(bench.answers.failure(0).code == data::Code::kFenced);
  CHECK(bench.context.fenced == 1);
  bench.take();
  bench.enter_barrier(3, 2);
  bench.commit({3});
  bench.rounds.recheck(false);
  CHECK(bench.take().size() == 1);
}

TEST_CASE("shard rounds: a worker that is by far the last is counted as late", "[rounds]") {
  RoundsBench bench({0, 1});
  bench.push(0, 1, 0, 100);
  bench.push(1, 1, 0, 101);
  bench.push(1, 2, 0, 102);
  bench.push(0, 2, 0, 201);
  const auto late = bench.rounds.take_late();
  CHECK(late.rounds == 2);
  CHECK(late.late == std::map<WorkerId, std::uint32_t>{{WorkerId(0), 1}});
  CHECK(bench.rounds.take_late().rounds == 0);
}

TEST_CASE("shard rounds: a worker whose connection ends is not answered, and still counts",
          "[rounds]") {
  RoundsBench bench({0, 1});
  bench.push(0, 1);
  bench.rounds.disconnect(WorkerId(0));
  bench.push(1, 1);
  const auto answers = bench.take();
  REQUIRE(answers.size() == 1);
  CHECK(answers[0].to == WorkerId(1));
  CHECK(floats_of(answers[0].payload) == std::vector<float>{2, 2});
}

TEST_CASE("shard rounds: each wait is of a worker's lowest key, the barrier's last", "[rounds]") {
  RoundsBench bench({0, 1, 2});
  bench.push(1, 1);
  bench.enter_barrier(1, 1);
  bench.enter_barrier(2, 1);
  data::Header asks;
  asks.type = data::Type::kInit;
  asks.worker = WorkerId(2);
  asks.key = KeyId(5);
  REQUIRE(bench.pending.put(asks, {}));
  asks.worker = WorkerId(9);  // no member
  REQUIRE(bench.pending.put(asks, {}));
  CHECK(bench.rounds.waits(bench.pending) ==
        std::vector<WaitingFor>{{WorkerId(1), KeyId(0), WorkerId(0), 1},
                                {WorkerId(2), KeyId(5), WorkerId(0), 0}});
  std::set<WorkerId> owing;
  std::set<WorkerId> waiting;
  bench.rounds.add_debts(bench.pending, owing, waiting);
  CHECK(owing == std::set{WorkerId(0), WorkerId(2)});
  CHECK(waiting == std::set{WorkerId(1), WorkerId(2)});
}
