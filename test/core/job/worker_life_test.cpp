#include "core/job/worker_life.h"

#include <map>

#include "test/support/catch.h"

using namespace dt;

namespace {

using S = WorkerState;
using E = WorkerEvent;

constexpr S kStates[] = {S::kSeen,   S::kPreparing, S::kStarting, S::kWarm,
                         S::kMember, S::kLeaving,   S::kStopping, S::kGone};
constexpr E kEvents[] = {
    E::kHostChosen,      E::kHostFailed, E::kStartSent, E::kStartLost, E::kJoined,
    E::kServersReplaced, E::kCommitted,  E::kRemoved,   E::kUnwanted,  E::kEnded};

}  // namespace

TEST_CASE("worker life: every event in every state does what this list shows and no more",
          "[worker_life]") {
  // Everything that is not here means nothing: a duplicate, or a message that crossed another.
  std::map<std::pair<S, E>, S> moves{
      {{S::kSeen, E::kHostChosen}, S::kPreparing},
      {{S::kSeen, E::kHostFailed}, S::kSeen},
      {{S::kPreparing, E::kHostFailed}, S::kSeen},
      {{S::kPreparing, E::kStartSent}, S::kStarting},
      {{S::kStarting, E::kStartLost}, S::kPreparing},
      {{S::kWarm, E::kServersReplaced}, S::kStarting},
      {{S::kMember, E::kRemoved}, S::kLeaving},
      {{S::kSeen, E::kUnwanted}, S::kGone},
      {{S::kPreparing, E::kUnwanted}, S::kGone},
      {{S::kStarting, E::kUnwanted}, S::kStopping},
      {{S::kWarm, E::kUnwanted}, S::kStopping},
  };
  // An agent, or the journal, may know more of a newcomer than this term has seen.
  for (const S state : {S::kSeen, S::kPreparing, S::kStarting})
    moves[{state, E::kJoined}] = S::kWarm;
  for (const S state : {S::kSeen, S::kPreparing, S::kStarting, S::kWarm})
    moves[{state, E::kCommitted}] = S::kMember;
  for (const S state : kStates)
    if (state != S::kGone) moves[{state, E::kEnded}] = S::kGone;
  for (const S state : kStates) {
    for (const E event : kEvents) {
      CAPTURE(name(state), static_cast<int>(event));
      const auto move = moves.find({state, event});
      const auto expected = move == moves.end() ? std::nullopt : std::optional(move->second);
      CHECK(next_state(state, event) == expected);
    }
  }
}

TEST_CASE("worker life: a process may exist from its start to its end", "[worker_life]") {
  for (const S state : kStates) {
    CAPTURE(name(state));
    const bool none = state == S::kSeen || state == S::kPreparing || state == S::kGone;
    CHECK(may_run(state) == !none);
    CHECK(on_the_way(state) == (state < S::kMember));
  }
}
