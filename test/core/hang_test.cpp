#include "core/hang.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

const ServerId kFirst(0);
const ServerId kSecond(1);
constexpr WorkerId kA(0);
constexpr WorkerId kB(1);

Time at(int seconds) { return Time{} + std::chrono::seconds(seconds); }

using Stalling = std::map<WorkerId, Time>;

}  // namespace

TEST_CASE("hang: who owes and does nothing stalls from the first report on", "[hang]") {
  HangWatch watch;
  for (int s = 10; s < 15; ++s) watch.report(kFirst, {{}, {kB}, {kA}}, at(s));
  CHECK(watch.stalling() == Stalling{{kB, at(10)}});
  watch.report(kFirst, {{}, {}, {}}, at(15));  // the round is complete
  CHECK(watch.stalling().empty());
}

TEST_CASE("hang: who does something or goes on begins anew", "[hang]") {
  HangWatch watch;
  watch.report(kFirst, {{}, {kB}, {kA}}, at(10));
  watch.report(kFirst, {{kB}, {kB}, {kA}}, at(11));  // the slowest, as ever, in another round
  CHECK(watch.stalling() == Stalling{{kB, at(11)}});
  watch.progress(kB, Epoch(0), 7, at(12));
  CHECK(watch.stalling() == Stalling{{kB, at(12)}});
  watch.progress(kB, Epoch(0), 7, at(13));  // an agent says again what was said
  CHECK(watch.stalling() == Stalling{{kB, at(12)}});
  CHECK(watch.position(kB)->since == at(12));
  CHECK_FALSE(watch.position(kA));
}

TEST_CASE("hang: who waits for another one does not stall, whichever server it waits at",
          "[hang]") {
  // B has given the second server its part and hangs; A may not give the first one anything before
  // it has the second one's answer.
  HangWatch watch;
  watch.report(kFirst, {{}, {kA, kB}, {}}, at(10));
  watch.report(kSecond, {{}, {kB}, {kA}}, at(10));
  CHECK(watch.stalling() == Stalling{{kB, at(10)}});
  CHECK(watch.waits(kA));
  CHECK_FALSE(watch.waits(kB));
  watch.forget(kB);  // dead: A goes on, and owes from now on
  CHECK(watch.stalling().empty());
  watch.report(kSecond, {{}, {}, {}}, at(20));
  watch.report(kFirst, {{}, {kA}, {}}, at(20));
  CHECK(watch.stalling() == Stalling{{kA, at(20)}});
}

TEST_CASE("hang: what happened while a server said nothing is not known", "[hang]") {
  HangWatch watch;
  CHECK(watch.is_informed(0, at(10)));
  CHECK_FALSE(watch.is_informed(1, at(10)));
  watch.report(kFirst, {{}, {kB}, {kA}}, at(10));
  CHECK(watch.is_informed(1, at(15)));
  CHECK_FALSE(watch.is_informed(1, at(16)));
  CHECK_FALSE(watch.is_informed(2, at(11)));
  watch.report(kFirst, {{}, {kB}, {kA}}, at(30));
  CHECK(watch.stalling() == Stalling{{kB, at(30)}});
}
