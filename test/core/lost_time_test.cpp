#include "core/lost_time.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

TEST_CASE("lost time: members' seconds by cause, as a share of all they had", "[lost_time]") {
  LostTime time;
  const auto at = [](int seconds) { return Time{} + std::chrono::seconds(seconds); };
  CHECK_FALSE(time.goodput());
  CHECK(time.summary() == "no time yet");
  time.pass(3, at(100));
  time.pass(2, at(110));
  time.pass(2, at(120));
  CHECK(time.total() == 50s);
  CHECK(time.goodput() == 1.0);
  time.lose("boundary", 2s);
  time.lose("boundary", 500ms);
  time.lose("death", 5s);
  CHECK(time.lost() == 7500ms);
  CHECK(time.goodput() == Approx(0.85));
  CHECK(time.summary() == "85.0 % of 50 worker-seconds; lost: boundary 2.5 s, death 5.0 s");
  time.lose("death", 1000s);
  CHECK(time.goodput() == 0.0);
}
