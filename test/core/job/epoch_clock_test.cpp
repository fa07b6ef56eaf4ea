#include "core/job/epoch_clock.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

constexpr Time kBegin = Time{} + 100s;

}  // namespace

TEST_CASE("epoch clock: nothing is known in the first epoch", "[job]") {
  EpochClock clock;
  CHECK_FALSE(clock.left(kBegin));
  clock.epoch_begins(kBegin);
  CHECK_FALSE(clock.left(kBegin + 10s));
  clock.at_step(5, kBegin + 5s);
  CHECK_FALSE(clock.left(kBegin + 10s));
}

TEST_CASE("epoch clock: by the steps that a worker announces", "[job]") {
  EpochClock clock;
  clock.announced(100);
  clock.epoch_begins(kBegin);
  clock.at_step(20, kBegin + 10s);
  CHECK(clock.left(kBegin + 10s) == 40s);
  CHECK(clock.left(kBegin + 15s) == 35s);
  CHECK(clock.left(kBegin + 60s) == 0s);
  clock.at_step(10, kBegin + 12s);  // a slower worker's
  CHECK(clock.left(kBegin + 15s) == 35s);
}

TEST_CASE("epoch clock: by the epoch before, its duration until a step is known", "[job]") {
  EpochClock clock;
  const bool counts_on = GENERATE(false, true);  // from the job's begin
  clock.epoch_begins(kBegin);
  clock.at_step(100, kBegin + 19s);
  clock.epoch_begins(kBegin + 20s);
  CHECK(clock.last() == 20s);
  CHECK(clock.left(kBegin + 25s) == 15s);
  clock.at_step(counts_on ? 125 : 25, kBegin + 30s);  // half as fast
  CHECK(clock.left(kBegin + 30s) == 30s);
}

TEST_CASE("epoch clock: an epoch whose begin was not seen ends at an unknown time", "[job]") {
  EpochClock clock;
  clock.epoch_begins(kBegin);
  clock.epoch_begins(kBegin + 20s);
  clock.forget_begin();
  CHECK_FALSE(clock.left(kBegin + 25s));
  clock.epoch_begins(kBegin + 70s);
  CHECK(clock.last() == 20s);
  CHECK(clock.left(kBegin + 70s) == 20s);
}
