#include "core/job/goodput.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

TEST_CASE("goodput: members' seconds by cause, as a share of all they had", "[goodput]") {
  Goodput time;
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  CHECK_FALSE(time.share());
  CHECK(time.summary() == "no time yet");
  time.pass(3, at(100));
  time.pass(2, at(110));
  time.pass(2, at(120));
  CHECK(time.total() == 50s);
  CHECK(time.share() == 1.0);
  time.lose("boundary", 2s);
  time.lose("boundary", 500ms);
  time.lose("death", 5s);
  CHECK(time.lost() == 7500ms);
  CHECK(time.share() == Approx(0.85));
  CHECK(time.summary() == "85.0 % of 50 worker-seconds; lost: boundary 2.5 s, death 5.0 s");
  time.lose("restart", 1s);
  CHECK(
      time.summary() ==
      "83.0 % of 50 worker-seconds; lost: boundary 2.5 s, death 5.0 s, restart 1.0 s (without what "
      "the command repeats after a restart)");
  time.lose("death", 1000s);
  CHECK(time.share() == 0.0);
}

TEST_CASE("goodput: a later term's sums include those of the earlier ones", "[goodput]") {
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  Goodput later;
  later.resume(60s, {{"death", 8s}});
  later.pass(1, at(1000));  // the time between two supervisors does not count
  later.pass(1, at(1010));
  CHECK(later.summary() == "88.6 % of 70 worker-seconds; lost: death 8.0 s");
}
