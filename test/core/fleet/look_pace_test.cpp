#include "core/fleet/look_pace.h"

#include <set>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using Look = LookPace::Look;

TEST_CASE("look pace: soon after news, then more and more seldom", "[fleet]") {
  LookPace pace(1);
  CHECK(pace.after(Look::kQuiet, 20s) == 1s);
  CHECK(pace.after(Look::kQuiet, 20s) == 1500ms);
  for (int i = 0; i < 20; ++i) (void)pace.after(Look::kQuiet, 20s);
  CHECK(pace.after(Look::kQuiet, 20s) == 20s);
  CHECK(pace.after(Look::kNews, 20s) == 1s);
  CHECK(pace.after(Look::kQuiet, 500ms) == 1s);
}

TEST_CASE("look pace: in trouble jobs do not ask in step, and never often", "[fleet]") {
  std::set<Duration> ninth;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    LookPace pace(seed);
    Duration last{};
    Duration sum{};
    for (int i = 0; i < 200; ++i) {
      last = pace.after(Look::kTrouble, 60s);
      REQUIRE(last >= 1s);
      REQUIRE(last <= 60s);
      sum += last;
      if (i == 8) ninth.insert(last);
    }
    // On average half of a minute.
    CHECK(sum > 200 * 24s);
    CHECK(sum < 200 * 36s);
    CHECK(pace.after(Look::kNews, 60s) == 1s);
  }
  CHECK(ninth.size() > 80);
}
