#include "supervisor/paced_loop.h"

#include <stdexcept>

#include "io/asio.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::TurnPace;

namespace {

struct Load {
  int turns = 0;
  int rests = 0;
};

/// Turns `apart` from each other, or as far as the rests make them, for `length`.
Load run(TurnPace& pace, Time& now, Duration apart, Duration length) {
  Load load;
  for (const Time end = now + length; now < end; ++load.turns) {
    const Duration rest = pace.after_turn(now);
    load.rests += rest > Duration{};
    now += std::max(apart, rest);
  }
  return load;
}

}  // namespace

TEST_CASE("turn pace: a job of a hundred hosts never rests", "[supervisor]") {
  TurnPace pace;
  Time now(10s);
  const Load load = run(pace, now, Duration(1s) / 230, 10min);
  CHECK(load.rests == 0);
}

TEST_CASE("turn pace: a burst is not slowed, and the next one neither", "[supervisor]") {
  TurnPace pace;
  Time now(10s);
  for (int burst = 0; burst < 3; ++burst) {
    const Load load = run(pace, now, 1us, 400us);
    CHECK(load.turns == 400);
    CHECK(load.rests == 0);
    now += 2s;
  }
}

TEST_CASE("turn pace: turns without end are bounded, and only while they last", "[supervisor]") {
  TurnPace pace;
  Time now(10s);
  const Load busy = run(pace, now, 100us, 60s);
  CHECK(busy.turns <= 60 * TurnPace::kTurns + TurnPace::kBurst + 1);
  CHECK(busy.turns >= 59 * TurnPace::kTurns);
  now += 2s;
  CHECK(run(pace, now, 1us, 400us).rests == 0);
}

namespace {

io::awaitable<int> take_turns(int count) {
  for (int i = 0; i < count; ++i) co_await io::asio::post(io::tok);
  co_return count;
}

io::awaitable<int> fail_after_a_turn() {
  co_await io::asio::post(io::tok);
  throw std::runtime_error("broken");
}

}  // namespace

TEST_CASE("paced loop: ends with its work, whatever else waits on the loop", "[supervisor]") {
  io::asio::io_context context(1);
  io::asio::steady_timer never(context, io::asio::steady_timer::time_point::max());
  never.async_wait([](const boost::system::error_code&) {});
  CHECK(supervisor::run_paced(context, take_turns(600)) == 600);
  context.restart();
  CHECK_THROWS_WITH(supervisor::run_paced(context, fail_after_a_turn()), "broken");
}
