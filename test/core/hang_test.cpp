#include "core/job/hang.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

const ServerId kFirst(0);
const ServerId kSecond(1);
constexpr WorkerId kA(0);
constexpr WorkerId kB(1);

Time at(int seconds) { return Time{} + std::chrono::seconds(seconds); }

using Ids = std::set<WorkerId>;

}  // namespace

TEST_CASE("hang: others wait for who owes and waits for nobody", "[hang]") {
  HangWatch watch;
  watch.report(kFirst, {{}, {kB}, {kA}});
  CHECK(watch.waited_for() == Ids{kB});
  watch.report(kFirst, {{}, {}, {}});  // the round is complete
  CHECK(watch.waited_for().empty());
}

TEST_CASE("hang: a position is new once", "[hang]") {
  HangWatch watch;
  CHECK(watch.progress(kB, Epoch(0), 7, at(12)));
  CHECK_FALSE(watch.progress(kB, Epoch(0), 7, at(13)));  // an agent says again what was said
  CHECK(watch.position(kB)->since == at(12));
  CHECK_FALSE(watch.position(kA));
}

TEST_CASE("hang: who waits for another one is not waited for, whichever server it waits at",
          "[hang]") {
  // B has given the second server its part and hangs; A may not give the first one anything before
  // it has the second one's answer.
  HangWatch watch;
  watch.report(kFirst, {{}, {kA, kB}, {}});
  watch.report(kSecond, {{}, {kB}, {kA}});
  CHECK(watch.waited_for() == Ids{kB});
  CHECK(watch.waits(kA));
  CHECK_FALSE(watch.waits(kB));
  watch.forget(kB);  // dead: A goes on, and owes from now on
  CHECK(watch.waited_for().empty());
  watch.report(kSecond, {{}, {}, {}});
  watch.report(kFirst, {{}, {kA}, {}});
  CHECK(watch.waited_for() == Ids{kA});
}

TEST_CASE("hang: a worker without any sign of life stands still, unless it is disconnected",
          "[hang]") {
  HangWatch watch;
  watch.signs_of_life({kA, kB}, {}, at(10));
  CHECK(watch.standing_still(at(12)).empty());
  watch.signs_of_life({kA}, {}, at(13));
  CHECK(watch.standing_still(at(13)) == Ids{kB});
  watch.signs_of_life({}, {kB}, at(14));
  CHECK(watch.standing_still(at(14)).empty());
}
