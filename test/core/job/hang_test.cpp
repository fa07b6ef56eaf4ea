#include "core/job/hang.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

const ServerId kServerOne(0);
const ServerId kServerTwo(1);
constexpr WorkerId kOne(0);
constexpr WorkerId kTwo(1);

Time second(int seconds) { return Time{} + std::chrono::seconds(seconds); }

using Ids = std::set<WorkerId>;

/// A report of the workers that rounds wait for, and of those that wait.
Traffic rounds(std::vector<WorkerId> owing, std::vector<WorkerId> waiting) {
  return {{}, {}, {}, std::move(owing), std::move(waiting), {}};
}

}  // namespace

TEST_CASE("hang: others wait for who owes and waits for nobody", "[hang]") {
  HangWatch watch;
  watch.report(kServerOne, rounds({kTwo}, {kOne}), second(0));
  CHECK(watch.waited_for() == Ids{kTwo});
  watch.report(kServerOne, rounds({}, {}), second(0));  // the round is complete
  CHECK(watch.waited_for().empty());
}

TEST_CASE("hang: a position is new once", "[hang]") {
  HangWatch watch;
  CHECK(watch.progress(kTwo, {Epoch(0), 7}, second(12)));
  CHECK_FALSE(watch.progress(kTwo, {Epoch(0), 7}, second(13)));  // an agent repeats it
  CHECK(watch.position(kTwo)->since == second(12));
  CHECK_FALSE(watch.position(kOne));
}

TEST_CASE("hang: who waits for another one is not waited for, whichever server it waits at",
          "[hang]") {
  // B has given the second server its part and hangs; A may not give the first one anything before
  // it has the second one's answer.
  HangWatch watch;
  watch.report(kServerOne, rounds({kOne, kTwo}, {}), second(0));
  watch.report(kServerTwo, rounds({kTwo}, {kOne}), second(0));
  CHECK(watch.waited_for() == Ids{kTwo});
  CHECK(watch.waits(kOne));
  CHECK_FALSE(watch.waits(kTwo));
  watch.forget(kTwo);  // dead: A goes on, and owes from now on
  CHECK(watch.waited_for().empty());
  watch.report(kServerTwo, rounds({}, {}), second(0));
  watch.report(kServerOne, rounds({kOne}, {}), second(0));
  CHECK(watch.waited_for() == Ids{kOne});
}

TEST_CASE("hang: a worker without any sign of life stands still, unless it is disconnected",
          "[hang]") {
  HangWatch watch;
  watch.report(kServerOne, {{kOne, kTwo}, {}, {}, {}, {}, {}}, second(10));
  CHECK(watch.standing_still(second(12)).empty());
  watch.report(kServerOne, {{kOne}, {}, {}, {}, {}, {}}, second(13));
  CHECK(watch.standing_still(second(13)) == Ids{kTwo});
  watch.report(kServerOne, {{}, {kTwo}, {}, {}, {}, {}}, second(14));
  CHECK(watch.standing_still(second(14)).empty());
}
