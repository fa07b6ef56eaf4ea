#include "kvstore/worker/member_state.h"

#include "kvstore/worker/chunk.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::kv;

namespace {

Release release(std::uint64_t generation, std::uint32_t epoch, std::uint32_t rank,
                std::uint32_t world_size) {
  Release release;
  release.generation = Generation(generation);
  release.epoch = Epoch(epoch);
  release.rank = Rank(rank);
  release.world_size = world_size;
  return release;
}

MemberState member(std::uint32_t rank, std::uint32_t num_workers, bool newcomer = false) {
  ClientOptions start;
  start.worker = WorkerId(rank + 10);
  start.rank = Rank(rank);
  start.num_workers = num_workers;
  start.newcomer = newcomer;
  return MemberState(start);
}

Request request(data::Type type) {
  Request request;
  request.header.type = type;
  return request;
}

Outcome answer(std::uint64_t round, std::optional<Code> error = {}) {
  Outcome outcome;
  outcome.header.round = Round(round);
  if (error) outcome.error = StoreError{*error, ""};
  return outcome;
}

}  // namespace

TEST_CASE("member: a release says who it is from now on, and whether that is new", "[member]") {
  auto me = member(1, 2);
  CHECK(me.is_member());
  CHECK_FALSE(me.is_lead());
  const Arrive arrive = me.arrive(Epoch(0));
  CHECK_FALSE(arrive.join);
  CHECK_FALSE(me.is_answered());
  me.on_release(release(1, 0, 1, 2));
  CHECK(me.is_answered());
  CHECK_FALSE(me.leave_boundary()->changed);
  (void)me.arrive(Epoch(1));
  me.on_release(release(4, 1, 0, 1));
  const auto view = me.leave_boundary();
  REQUIRE(view);
  CHECK(view->changed);
  CHECK(me.is_lead());
  CHECK(me.view().rank == Rank(0));
  CHECK(me.view().num_workers == 1);
  CHECK(me.generation() == Generation(4));
}

TEST_CASE("member: the answer to an earlier arrival releases nobody from a later one", "[member]") {
  auto me = member(0, 1);
  me.on_release(release(1, 0, 0, 1));  // the worker has not arrived
  CHECK_FALSE(me.is_answered());
  (void)me.arrive(Epoch(0));
  me.on_release(release(1, 0, 0, 1));
  REQUIRE(me.leave_boundary());
  me.on_release(release(1, 0, 0, 1));
  (void)me.arrive(Epoch(1));
  CHECK_FALSE(me.is_answered());
  me.on_release(release(1, 0, 0, 1));
  CHECK_FALSE(me.is_answered());
  me.on_release(release(1, 1, 0, 1));
  CHECK(me.leave_boundary()->epoch == Epoch(1));
}

TEST_CASE("member: a newcomer is none before its first release", "[member]") {
  auto me = member(0, 3, true);
  CHECK_FALSE(me.is_member());
  CHECK_FALSE(me.is_lead());
  CHECK(me.generation() == Generation(0));
  CHECK(me.arrive(Epoch(0)).join);
  me.on_release(release(7, 5, 2, 3));
  const auto view = me.leave_boundary();
  REQUIRE(view);
  CHECK(view->changed);
  CHECK(view->epoch == Epoch(5));
  CHECK(me.is_member());
}

TEST_CASE("member: whoever is to leave has no view", "[member]") {
  auto me = member(1, 2);
  (void)me.arrive(Epoch(3));
  Release leave;
  leave.verdict = Verdict::kLeave;
  me.on_release(leave);
  CHECK(me.is_answered());
  CHECK(me.must_leave());
  CHECK_FALSE(me.leave_boundary());
}

TEST_CASE("member: a death told of between a release and its taking is not forgotten", "[member]") {
  auto me = member(1, 3);
  (void)me.arrive(Epoch(2));
  me.on_release(release(5, 2, 1, 3));
  Shrunk shrunk;  // rank 0 died
  shrunk.generation = Generation(6);
  shrunk.lead = WorkerId(11);
  me.on_shrunk(shrunk);
  REQUIRE(me.leave_boundary());
  // Servers may learn of it later than this worker: its frames carry the generation that all know.
  CHECK(me.generation() == Generation(5));
  CHECK(me.is_lead());
  shrunk.generation = Generation(5);
  shrunk.lead = WorkerId(10);
  me.on_shrunk(shrunk);  // late
  CHECK(me.is_lead());
}

TEST_CASE("member: with new servers no earlier release counts", "[member]") {
  auto me = member(1, 3);
  (void)me.arrive(Epoch(4));
  me.on_release(release(5, 4, 1, 3));
  REQUIRE(me.leave_boundary());
  CHECK(me.arrive(Epoch(2), Generation(7)).servers == Generation(7));
  me.on_release(
      release(6, 5, 1, 3));  // from the boundary at which it waited when a server was lost
  CHECK_FALSE(me.is_answered());
  auto back = release(7, 2, 1, 3);
  back.verdict = Verdict::kRollback;
  me.on_release(back);
  const auto view = me.leave_boundary();
  REQUIRE(view);
  CHECK(view->rolled_back);
  CHECK(view->epoch == Epoch(2));
  (void)me.arrive(Epoch(3), Generation(7));
  me.on_release(release(7, 3, 1, 3));
  CHECK_FALSE(me.leave_boundary()->rolled_back);
}

TEST_CASE("chunk: one request at a time, each with the round that is open then", "[chunk]") {
  ChunkState::Turns turns;
  const auto first = turns.submit(request(data::Type::kPush));
  REQUIRE(first);
  CHECK(first->header.round == Round(1));
  CHECK_FALSE(turns.submit(request(data::Type::kPull)));
  CHECK_FALSE(turns.submit(request(data::Type::kPushPull)));
  CHECK_FALSE(turns.submit(request(data::Type::kPush)));
  const auto second = turns.answered(*first, answer(1));
  REQUIRE(second);
  CHECK(second->header.type == data::Type::kPull);
  const auto third = turns.answered(*second, answer(0));
  REQUIRE(third);
  CHECK(third->header.round == Round(2));
  // A round whose contributors disagreed is over; a refused one did not use up a number.
  const auto fourth = turns.answered(*third, answer(2, Code::kMismatch));
  REQUIRE(fourth);
  CHECK(fourth->header.round == Round(3));
  CHECK_FALSE(turns.answered(*fourth, answer(3, Code::kFenced)));
  CHECK(turns.submit(request(data::Type::kPush))->header.round == Round(3));
}
