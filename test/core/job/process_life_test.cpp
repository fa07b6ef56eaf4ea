#include "core/job/process_life.h"

#include <map>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

using S = WorkerState;
using E = WorkerEvent;

constexpr S kStates[] = {S::kSeen,   S::kPreparing, S::kStarting, S::kWarm,
                         S::kMember, S::kLeaving,   S::kStopping, S::kGone};
constexpr E kEvents[] = {E::kHostChosen,  E::kStartSent, E::kJoined, E::kCommitted,
                         E::kToldToLeave, E::kUnwanted,  E::kEnded};

}  // namespace

TEST_CASE("process life: every event in every state does what the diagram says and no more",
          "[process_life]") {
  // Everything that is not here means nothing: a duplicate, or a message that crossed another.
  const std::map<std::pair<S, E>, S> moves{
      {{S::kSeen, E::kHostChosen}, S::kPreparing},
      {{S::kSeen, E::kUnwanted}, S::kGone},
      {{S::kPreparing, E::kStartSent}, S::kStarting},
      {{S::kPreparing, E::kUnwanted}, S::kGone},
      {{S::kStarting, E::kJoined}, S::kWarm},
      {{S::kStarting, E::kUnwanted}, S::kStopping},
      {{S::kWarm, E::kCommitted}, S::kMember},
      {{S::kWarm, E::kUnwanted}, S::kStopping},
      {{S::kMember, E::kToldToLeave}, S::kLeaving},
      {{S::kSeen, E::kEnded}, S::kGone},
      {{S::kPreparing, E::kEnded}, S::kGone},
      {{S::kStarting, E::kEnded}, S::kGone},
      {{S::kWarm, E::kEnded}, S::kGone},
      {{S::kMember, E::kEnded}, S::kGone},
      {{S::kLeaving, E::kEnded}, S::kGone},
      {{S::kStopping, E::kEnded}, S::kGone},
  };
  for (const S state : kStates) {
    for (const E event : kEvents) {
      CAPTURE(name(state), static_cast<int>(event));
      const auto move = moves.find({state, event});
      const auto expected = move == moves.end() ? std::nullopt : std::optional(move->second);
      CHECK(next_state(state, event) == expected);
    }
  }
}

TEST_CASE("process life: a process may exist from its start to its end", "[process_life]") {
  for (const S state : kStates) {
    CAPTURE(name(state));
    const bool none = state == S::kSeen || state == S::kPreparing || state == S::kGone;
    CHECK(may_run(state) == !none);
    CHECK(on_the_way(state) == (state < S::kMember));
  }
}

TEST_CASE("process life: healthy time forgives failures one by one, and never more than there are",
          "[process_life]") {
  const auto at = [](int minutes) { return std::int64_t{minutes} * 60'000'000'000; };
  Failures failures;
  for (int i = 0; i < 4; ++i) failures.add(at(100), 10min);
  CHECK(failures.count() == 4);
  failures.add(at(109), 10min);
  CHECK(failures.count() == 5);
  failures.add(at(130), 10min);  // two forgiven, one more
  CHECK(failures.count() == 4);
  failures.add(at(90), 10min);  // the clock was set back
  CHECK(failures.count() == 5);
  failures.add(at(100000), 10min);
  CHECK(failures.count() == 1);
  failures.add(at(200000), 0min);  // for ever
  CHECK(failures.count() == 2);
}

TEST_CASE("process life: retries are delayed longer each time, jittered, at most 75 s",
          "[process_life]") {
  for (std::uint64_t salt = 0; salt < 200; ++salt) {
    for (std::uint32_t attempt = 1; attempt < 40; ++attempt) {
      const auto plain = std::min<Duration>(1s * (1U << std::min(attempt - 1, 6U)), 60s);
      const Duration delay = retry_delay(attempt, salt);
      REQUIRE(delay >= plain * 3 / 4);
      REQUIRE(delay <= plain * 5 / 4);
      REQUIRE(delay == retry_delay(attempt, salt));
      // Doubling beats the jitter: 0.75 * 2 > 1.25.
      if (attempt < 6) REQUIRE(retry_delay(attempt + 1, salt) > delay);
    }
  }
  CHECK(retry_delay(0, 1) <= 2s);
  CHECK(retry_delay(1, 1) != retry_delay(1, 2));
}
