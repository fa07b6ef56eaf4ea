#include "core/fleet/fleet_memory.h"

#include "core/launch/holders.h"
#include "test/support/catch.h"

namespace dt {
namespace {

/// A holder of n2 that is kept.
Machine kept(Mark mark) {
  return {.id = "41",
          .state = MachineState::kReady,
          .host = "n2",
          .mark = mark,
          .order = 41,
          .kept = std::vector<std::string>{"-p"}};
}
Machine replacement() { return {.id = "57", .order = 57, .replaces = "41"}; }

/// n2 goes away; nobody hears its agent.
JobWish without_n2() {
  JobWish wish{.wanted = 1};
  wish.hosts["n2"] = {.in_file = 1, .empty = 1, .is_leaving = true, .needs_machine = true};
  return wish;
}

using Actions = std::vector<FleetAction>;

TEST_CASE("fleet memory: a kept machine that leaves the list is asked for again", "[fleet]") {
  FleetMemory memory;
  JobWish wish = without_n2();
  wish.hosts["n2"].is_leaving = false;
  wish.hosts["n2"].empty = 0;
  CHECK(memory.look({kept(Mark::kAdded)}, wish, kHolderRules).empty());
  const Actions replaced = memory.look({}, without_n2(), kHolderRules);
  REQUIRE(replaced == Actions{Replace{"41", false}});
  CHECK(memory.machine("41").kept);
  // It failed.
  CHECK(memory.look({}, without_n2(), kHolderRules) == replaced);
  memory.note_done(replaced.front());
  // Then its line goes, at the second list without it.
  CHECK(memory.look({replacement()}, without_n2(), kHolderRules).empty());
  CHECK(memory.look({replacement()}, without_n2(), kHolderRules) == Actions{DropHost{"n2", true}});
}

TEST_CASE("fleet memory: a list that lacks a kept machine once asks for one other", "[fleet]") {
  FleetMemory memory;
  (void)memory.look({kept(Mark::kAdded)}, JobWish{}, kHolderRules);
  CHECK(memory.look({}, without_n2(), kHolderRules) == Actions{Replace{"41", false}});
  CHECK(memory.look({kept(Mark::kAdded)}, without_n2(), kHolderRules).size() ==
        2);  // Replace, its workers are gone
}

TEST_CASE("fleet memory: the line of a machine that never joined does not stay", "[fleet]") {
  FleetMemory memory;
  JobWish wish = without_n2();
  wish.hosts["n2"].is_running = true;
  (void)memory.look({kept(Mark::kNone)}, wish, kHolderRules);
  CHECK(memory.look({}, without_n2(), kHolderRules).empty());
  CHECK(memory.look({}, without_n2(), kHolderRules) == Actions{DropHost{"n2", true}});
}

TEST_CASE("fleet memory: after a restart the replacement of an ending machine is seen", "[fleet]") {
  FleetMemory memory;
  Machine ends = kept(Mark::kAdded);
  ends.state = MachineState::kEnding;
  CHECK(memory.look({ends, replacement()}, without_n2(), kHolderRules).empty());
  CHECK(memory.look({replacement()}, without_n2(), kHolderRules).empty());
  CHECK(memory.look({replacement()}, without_n2(), kHolderRules) == Actions{DropHost{"n2", true}});
}

TEST_CASE("fleet memory: an old list takes no mark back", "[fleet]") {
  FleetMemory memory;
  JobWish wish;
  wish.hosts["n2"] = {.in_file = 1, .is_running = true};
  const Machine seen{.id = "i-1", .state = MachineState::kReady, .host = "n2"};
  const Actions first = memory.look({seen}, wish, FleetRules{});
  REQUIRE(first == Actions{SetMark{"i-1", Mark::kAddQueued}});
  memory.note_done(first.front());
  // A person removes the line, and the list is from before the mark.
  CHECK(memory.look({seen}, JobWish{}, FleetRules{}) == Actions{SetMark{"i-1", Mark::kRemoved}});
}

TEST_CASE("fleet memory: a machine is confirmed once", "[fleet]") {
  FleetMemory memory;
  const Machine held{.id = "i-1",
                     .state = MachineState::kEnding,
                     .host = "n2",
                     .mark = Mark::kRemoved,
                     .deadline = 900,
                     .is_held_back = true};
  REQUIRE(memory.look({held}, JobWish{}, FleetRules{}) == Actions{Confirm{"i-1"}});
  CHECK(memory.look({held}, JobWish{}, FleetRules{}) == Actions{Confirm{"i-1"}});  // it failed
  memory.note_done(Confirm{"i-1"});
  CHECK(memory.look({held}, JobWish{}, FleetRules{}).empty());
}

}  // namespace
}  // namespace dt
