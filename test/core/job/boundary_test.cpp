#include "core/job/boundary.h"

#include <rapidcheck.h>

#include <set>

#include "test/core/job/ids.h"
#include "test/support/catch.h"

using namespace dt;
using dt::test::ids;

namespace {

Boundary begun(std::initializer_list<std::uint32_t> members) {
  Boundary b;
  b.begin(ids(members));
  return b;
}

}  // namespace

TEST_CASE("boundary: after a rollback everybody arrives anew, from wherever it was", "[boundary]") {
  Boundary b = begun({0, 1});
  b.begin_epoch(Epoch(4));
  static_cast<void>(b.arrive(WorkerId(0), Epoch(5)));
  b.acked(ServerId(0), Generation(1));
  b.roll_back(Generation(2), Epoch(2));
  CHECK(b.missing() == ids({0, 1}));
  CHECK_FALSE(b.has_acked(ServerId(0)));
  CHECK(b.arrive(WorkerId(0), Epoch(2)) == Boundary::Arrival::kCounted);
  CHECK(b.arrive(WorkerId(1), Epoch(2)) == Boundary::Arrival::kCounted);
  CHECK(b.complete() == Epoch(2));
  b.begin_epoch(Epoch(2));
  CHECK(b.has_returned());
  CHECK(b.arrive(WorkerId(1), Epoch(2)) == Boundary::Arrival::kReleased);
  static_cast<void>(b.arrive(WorkerId(0), Epoch(3)));
  static_cast<void>(b.arrive(WorkerId(1), Epoch(3)));
  CHECK(b.complete() == Epoch(3));
  b.begin_epoch(Epoch(3));
  CHECK_FALSE(b.has_returned());
}

TEST_CASE("boundary: it is complete when every contributor has arrived", "[boundary]") {
  Boundary b = begun({0, 1, 2});
  CHECK_FALSE(b.complete());
  CHECK(b.arrive(WorkerId(1), Epoch(0)) == Boundary::Arrival::kCounted);
  CHECK(b.arrive(WorkerId(1), Epoch(0)) == Boundary::Arrival::kCounted);
  CHECK(b.missing() == ids({0, 2}));
  static_cast<void>(b.arrive(WorkerId(0), Epoch(0)));
  static_cast<void>(b.arrive(WorkerId(2), Epoch(0)));
  CHECK(b.complete() == Epoch(0));
  b.begin_epoch(Epoch(0));
  CHECK_FALSE(b.complete());
  CHECK(b.missing() == ids({0, 1, 2}));
}

TEST_CASE("boundary: who comes to the present epoch is released again, to another one is wrong",
          "[boundary]") {
  Boundary b = begun({0, 1});
  b.begin_epoch(Epoch(5));
  CHECK(b.arrive(WorkerId(0), Epoch(5)) == Boundary::Arrival::kReleased);
  CHECK(b.arrive(WorkerId(0), Epoch(6)) == Boundary::Arrival::kCounted);
  CHECK(b.arrive(WorkerId(1), Epoch(7)) == Boundary::Arrival::kWrong);
  CHECK(b.arrive(WorkerId(1), Epoch(4)) == Boundary::Arrival::kWrong);
  CHECK(b.missing() == ids({1}));
}

TEST_CASE("boundary: a job may begin with any epoch, but with one", "[boundary]") {
  Boundary b = begun({0, 1});
  CHECK(b.arrive(WorkerId(0), Epoch(7)) == Boundary::Arrival::kCounted);
  CHECK_FALSE(b.odd_one());
  static_cast<void>(b.arrive(WorkerId(1), Epoch(8)));
  CHECK(b.odd_one() == WorkerId(1));
  CHECK_FALSE(b.complete());
}

TEST_CASE("boundary: a death completes it for the others and changes no rank", "[boundary]") {
  Boundary b = begun({0, 1, 2});
  b.begin_epoch(Epoch(0));
  static_cast<void>(b.arrive(WorkerId(0), Epoch(1)));
  static_cast<void>(b.arrive(WorkerId(2), Epoch(1)));
  CHECK_FALSE(b.complete());
  b.forget(WorkerId(1));
  b.commit({Generation(2), false, Epoch(0), ids({0, 1, 2}), ids({0, 2}), {}, {}});
  CHECK(b.complete() == Epoch(1));
  CHECK(b.rank_of(WorkerId(2)) == Rank(2));
  CHECK(b.members().size() == 3);
  b.commit({Generation(3), true, Epoch(1), ids({0, 2}), ids({0, 2}), {}, {}});
  CHECK(b.rank_of(WorkerId(2)) == Rank(1));
  CHECK_FALSE(b.rank_of(WorkerId(1)));
}

TEST_CASE("boundary: who died after it arrived does not count", "[boundary]") {
  Boundary b = begun({0, 1});
  static_cast<void>(b.arrive(WorkerId(1), Epoch(0)));
  b.forget(WorkerId(1));
  static_cast<void>(b.arrive(WorkerId(0), Epoch(0)));
  CHECK_FALSE(b.complete());
}

TEST_CASE("boundary: with nobody left it is never complete", "[boundary]") {
  Boundary b = begun({0});
  b.begin_epoch(Epoch(0));
  b.commit({Generation(2), false, Epoch(0), ids({0}), {}, {}, {}});
  CHECK_FALSE(b.complete());
  CHECK(b.missing().empty());
}

TEST_CASE("boundary: every server has to know the present generation or a later one",
          "[boundary]") {
  Boundary b = begun({0});
  CHECK_FALSE(b.has_acked(ServerId(0)));
  b.acked(ServerId(0), Generation(1));
  CHECK(b.has_acked(ServerId(0)));
  CHECK_FALSE(b.has_acked(ServerId(1)));
  b.commit({Generation(2), true, Epoch(0), ids({0}), ids({0}), {}, {}});
  CHECK_FALSE(b.has_acked(ServerId(0)));
  b.acked(ServerId(0), Generation(2));
  b.acked(ServerId(0), Generation(1));  // late
  CHECK(b.has_acked(ServerId(0)));
}

TEST_CASE("boundary: ranks are dense whatever the members are", "[boundary][property]") {
  CHECK(rc::check("each rank once, 0 to n-1", [](const std::set<std::uint32_t>& values) {
    std::vector<WorkerId> members;
    for (const auto v : values) members.emplace_back(v);
    Boundary b;
    b.begin(members);
    std::set<std::uint32_t> ranks;
    for (const WorkerId id : members) ranks.insert(b.rank_of(id)->value);
    RC_ASSERT(ranks.size() == members.size());
    if (!members.empty()) RC_ASSERT(*ranks.rbegin() == members.size() - 1);
  }));
}
