#include "supervisor/control/pace.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::Pace;

namespace {

/// Three members that make a step of 100 ms for so many seconds; of each, worker 0 needs `own[0]`
/// milliseconds for itself ... Reports once a second.
struct Training {
  Pace pace;
  std::vector<Figures> sums = std::vector<Figures>(3);
  Duration at{};

  /// `latest` comes last in `late` of a second's 10 rounds. True: a window has ended.
  bool train(int seconds, const std::vector<int>& own, std::uint32_t latest, std::uint32_t late,
             std::uint32_t steps = 10) {
    bool is_new = false;
    for (int s = 0; s < seconds; ++s) {
      at += 1s;
      Traffic report;
      report.rounds = steps;
      report.late_rounds = late;
      report.latest = WorkerId(latest);
      pace.report(report);
      for (std::uint32_t id = 0; id < 3; ++id) {
        sums[id].steps += steps;
        sums[id].waited_ns += static_cast<std::uint64_t>(1000 - own[id] * 10) * 1'000'000;
        pace.figures(WorkerId(id), sums[id], Time(at));
      }
      is_new = pace.tick({WorkerId(0), WorkerId(1), WorkerId(2)}, Time(at)) || is_new;
    }
    return is_new;
  }
};

}  // namespace

TEST_CASE("pace: the slow worker has a name and two figures", "[pace]") {
  Training t;
  REQUIRE(t.train(20, {11, 95, 12}, 1, 9));
  REQUIRE(t.pace.slowest());
  CHECK(t.pace.slowest()->worker == WorkerId(1));
  CHECK(t.pace.slowest()->text() == "slowest: 95 ms of own work a step, the others 12 ms");
  CHECK(t.pace.of(WorkerId(0))->waits == Approx(0.89));
  CHECK(*t.pace.balance() == Approx((0.11 + 0.95 + 0.12) / 3));
  SECTION("until it is as fast as they are") { t.train(20, {11, 12, 12}, 1, 4); }
  SECTION("or the members change") { t.pace.restart(); }
  CHECK_FALSE(t.pace.slowest());
}

TEST_CASE("pace: nobody is named", "[pace]") {
  Training t;
  SECTION("where all are equal") { t.train(40, {90, 90, 91}, 2, 9); }
  SECTION("where each is last in turn") { t.train(40, {50, 80, 50}, 1, 5); }
  SECTION("while the lead evaluates: there are few steps, and it is last in one of them") {
    t.train(15, {50, 50, 50}, 0, 3);
    t.train(1, {100, 50, 50}, 0, 1, 1);
    t.train(30, {100, 0, 0}, 0, 0, 0);
    t.train(15, {50, 50, 50}, 2, 3);
  }
  CHECK(t.pace.balance());
  CHECK_FALSE(t.pace.slowest());
}

TEST_CASE("pace: a window lasts until every member has made some steps", "[pace]") {
  Training t;
  CHECK_FALSE(t.train(10, {11, 95, 12}, 1, 0, 0));
  CHECK_FALSE(t.pace.balance());
  CHECK(t.train(9, {11, 95, 12}, 1, 1, 1));
  CHECK(t.pace.slowest());
}
