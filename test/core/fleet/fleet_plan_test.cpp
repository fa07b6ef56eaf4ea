#include "core/fleet/fleet_plan.h"

#include <algorithm>

#include "core/launch/holders.h"
#include "test/support/catch.h"

namespace dt {
namespace {

Machine pending(std::uint32_t id) {
  return {.id = std::to_string(id), .why = "Priority", .order = id};
}
Machine running(std::uint32_t id, std::string host, bool is_joined = false) {
  return {.id = std::to_string(id),
          .state = MachineState::kReady,
          .host = std::move(host),
          .mark = is_joined ? Mark::kAdded : Mark::kNone,
          .order = id};
}
Machine ending(std::uint32_t id, std::string host) {
  Machine machine = running(id, std::move(host), true);
  machine.state = MachineState::kEnding;
  return machine;
}
JobHost held(std::uint32_t in_file, bool is_running, std::uint32_t empty = 0) {
  return {.in_file = in_file, .empty = empty, .is_running = is_running, .needs_machine = true};
}

using Actions = std::vector<FleetAction>;

std::vector<FleetAction> actions(const std::vector<Machine>& machines, const JobWish& wish,
                                 const std::vector<std::string>& missing = {}) {
  return plan_fleet(machines, wish, kHolderRules, missing).actions;
}

TEST_CASE("fleet: people read how many are asked for and why some wait", "[fleet]") {
  CHECK(machines_for_people({}).empty());
  CHECK(machines_for_people({running(1, "n2"), pending(2)}) == "2 asked for, 1 pending (Priority)");
  CHECK(machines_for_people({running(1, "n2")}) == "1 asked for");
}

TEST_CASE("fleet: machine-hours are those of the machines that say when they came", "[fleet]") {
  constexpr double kNow = 1'764'000'000;
  CHECK_FALSE(machine_hours({}, kNow));
  CHECK_FALSE(machine_hours({running(1, "n2")}, kNow));
  Machine old = running(1, "n2");
  old.since = kNow - 2 * 3600;
  Machine young = pending(2);
  young.since = kNow - 1800;
  Machine of_another_clock = running(3, "n3");
  of_another_clock.since = kNow + 7200;
  CHECK(machine_hours({old, young, of_another_clock, running(4, "n4")}, kNow) == 2.5);
}

TEST_CASE("fleet plan, Slurm: a node joins once, whoever looks and however often", "[fleet]") {
  JobWish wish{.wanted = 1};
  CHECK(actions({pending(1)}, wish).empty());
  CHECK(actions({running(1, "n2")}, wish) == Actions{AddHost{"n2", 1, "1"}});
  wish.hosts["n2"] = held(1, false);
  wish.wanted = 2;
  CHECK(actions({running(1, "n2")}, wish) ==
        std::vector<FleetAction>{SetMark{"1", Mark::kAddQueued}});
  CHECK(actions({running(1, "n2", true)}, wish).empty());
}

TEST_CASE("fleet plan, Slurm: a host that was taken out is given back when its workers are gone",
          "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = held(0, true);
  CHECK(actions({running(1, "n2", true)}, wish).empty());
  wish.hosts["n2"] = held(0, false);
  CHECK(actions({running(1, "n2", true)}, wish) ==
        std::vector<FleetAction>{LetGo{"1", "its workers are gone"}});
  // All of them have left by themselves, or by a notice.
  wish.hosts["n2"] = held(2, false, 2);
  CHECK(actions({running(1, "n2", true)}, wish).size() == 1);
  wish.hosts["n2"] = held(2, false, 1);
  CHECK(actions({running(1, "n2", true)}, wish).empty());
  wish.hosts["n2"] = held(1, false);
  wish.hosts["n2"].is_given_up = true;
  CHECK(actions({running(1, "n2", true)}, wish).size() == 1);
}

TEST_CASE(
    "fleet plan, Slurm: a new holder of a node waits for the end of the workers of the one before",
    "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = held(0, true);
  CHECK(actions({running(2, "n2")}, wish).empty());
  // Its lines are still there, without a worker.
  wish.hosts["n2"] = held(1, false, 1);
  CHECK(actions({running(2, "n2")}, wish) == std::vector<FleetAction>{DropHost{"n2"}});
}

TEST_CASE("fleet plan, Slurm: a holder that comes when nobody is wanted is given back", "[fleet]") {
  const JobWish wish{.max_workers = 3, .wanted = 2};
  const auto done = actions({running(1, "n2"), running(2, "n3")}, wish);
  REQUIRE(done.size() == 2);
  CHECK(done[0] == FleetAction(AddHost{"n2", 1, "1"}));
  REQUIRE(std::holds_alternative<LetGo>(done[1]));
  CHECK(std::get<LetGo>(done[1]).id == "2");
}

TEST_CASE("fleet plan, Slurm: one that comes before a host has gone waits for its place",
          "[fleet]") {
  const JobWish leaving{.max_workers = 2, .wanted = 1, .lines = 2};
  CHECK(actions({running(58, "n3")}, leaving).empty());
  const JobWish gone{.max_workers = 2, .wanted = 1, .lines = 1};
  CHECK(actions({running(58, "n3")}, gone).front() == FleetAction(AddHost{"n3", 1, "58"}));
}

TEST_CASE("fleet plan, Slurm: what Slurm takes is asked for again where it is kept, once",
          "[fleet]") {
  JobWish wish{.wanted = 1};
  wish.hosts["n2"] = held(1, true);
  Machine kept = running(41, "n2", true);
  kept.kept = {"-p", "gpu"};
  CHECK(actions({kept}, wish).empty());
  wish.hosts["n2"].is_leaving = true;
  CHECK(actions({kept}, wish) == std::vector<FleetAction>{Replace{"41", false}});
  CHECK(actions({running(41, "n2", true)}, wish).empty());
  // The one who asked died before it could say so; and the queue was not asked before the end.
  Machine other = pending(57);
  other.replaces = "41";
  CHECK(actions({kept, other}, wish) == std::vector<FleetAction>{Replace{"41", true}});
  // Its workers have left before anybody looked.
  kept.state = MachineState::kEnding;
  wish.hosts["n2"] = held(1, false, 1);
  wish.hosts["n2"].is_leaving = true;
  CHECK(actions({kept}, wish) == std::vector<FleetAction>{Replace{"41", false}});
  CHECK(actions({kept, other}, wish).empty());
  // An earlier holder of the node was taken.
  Machine next = running(58, "n2");
  next.kept = kept.kept;
  CHECK(actions({next}, wish) == std::vector<FleetAction>{DropHost{"n2"}});
  // Its line was removed.
  wish.hosts["n2"].in_file = 0;
  CHECK(actions({kept}, wish).empty());
  wish.hosts["n2"] = held(1, true);
  wish.hosts["n2"].is_leaving = true;
  wish.lets_go = true;
  CHECK(actions({kept}, wish).empty());
}

TEST_CASE("fleet plan, Slurm: a node that the job has already is not held twice", "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = held(1, true);
  auto done = actions({running(1, "n2", true), running(2, "n2")}, wish);
  REQUIRE(done.size() == 1);
  CHECK(std::get<LetGo>(done[0]).id == "2");
  wish.hosts["n1"] = {.in_file = 1, .is_running = true, .is_own = true};
  done = actions({running(1, "n2", true), running(3, "n1")}, wish);
  REQUIRE(done.size() == 1);
  CHECK(std::get<LetGo>(done[0]).id == "3");
}

TEST_CASE("fleet plan: lines whose machine is gone are dropped at the second look", "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = held(1, true);
  wish.hosts["n9"] = {.in_file = 1, .is_own = true};
  const FleetPlan first = plan_fleet({}, wish, kHolderRules, {});
  CHECK(first.actions.empty());
  CHECK(first.missing == std::vector<std::string>{"n2"});
  CHECK(actions({}, wish, first.missing) == std::vector<FleetAction>{DropHost{"n2", true}});
  // One that ends still has it.
  CHECK(actions({ending(1, "n2")}, wish, first.missing).empty());
}

TEST_CASE("fleet plan: an empty list takes no host whose agent answers, however often", "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = held(1, true);
  wish.hosts["n2"].is_linked = true;
  const FleetPlan second = plan_fleet({}, wish, kHolderRules, {"n2"});
  CHECK(second.actions.empty());
  CHECK(second.missing == std::vector<std::string>{"n2"});
}

TEST_CASE("fleet plan, Slurm: a job that has ended gives everything back and drops nothing",
          "[fleet]") {
  JobWish wish{.lets_go = true};
  wish.hosts["n4"] = held(1, false);
  const auto done = actions({pending(1), running(2, "n2", true), running(3, "n3")}, wish, {"n4"});
  CHECK(done.size() == 3);
  CHECK(std::ranges::all_of(done,
                            [](const FleetAction& a) { return std::holds_alternative<LetGo>(a); }));
}

constexpr FleetRules kCloud{};  // nothing is given back that nobody has asked for

std::vector<FleetAction> cloud(const Machine& machine, const JobHost& host) {
  JobWish wish;
  wish.hosts["n2"] = host;
  return plan_fleet({machine}, wish, kCloud, {}).actions;
}

TEST_CASE("fleet plan: at the end machines go, those of the launch not, marked or unmarked",
          "[fleet]") {
  JobWish wish{.lets_go = true};
  wish.hosts["b"] = {.in_file = 1, .is_own = true};
  wish.hosts["n2"] = held(1, true);
  const std::vector<Machine> all = {running(1, "b"), running(2, "n2", true), pending(3)};
  const FleetRules rules{.returns_at_end = true};
  CHECK(plan_fleet(all, wish, rules, {}).actions ==
        Actions{LetGo{"2", "the job has ended"}, LetGo{"3", "the job has ended"}});
  CHECK(plan_fleet(all, wish, kCloud, {}).actions.empty());
}

TEST_CASE("fleet plan: a machine that replaced a base host stays, and the replaced one may go",
          "[fleet]") {
  JobWish wish;
  wish.hosts["n2"] = {.in_file = 1, .is_running = true, .is_own = true, .is_base = true};
  Machine joined = running(1, "n2", true);
  for (const FleetRules& rules : {kHolderRules, kCloud})
    CHECK(plan_fleet({joined}, wish, rules, {}).actions.empty());
  joined.is_asked = true;
  Machine base = running(2, "b");
  base.mark = Mark::kBase;
  const std::vector<Machine> both = {joined, base};
  CHECK(plan_fleet(both, wish, kCloud, {}).actions.empty());
  wish.hosts["b"] = {.is_running = true, .is_replaced = true};
  CHECK(plan_fleet(both, wish, kCloud, {}).actions.empty());
  wish.hosts["b"].is_running = false;
  CHECK(plan_fleet(both, wish, kCloud, {}).actions == Actions{SetMark{"2", Mark::kRemoved}});
}

TEST_CASE("fleet plan: a machine's marks follow its host, from the line to the last worker",
          "[fleet]") {
  Machine machine = running(1, "n2");
  // Marked at once, it would be REMOVED if the supervisor died before it took the line.
  CHECK(cloud(machine, {}) == Actions{AddHost{"n2", 1, "1"}});
  CHECK(cloud(machine, held(1, false)) == Actions{SetMark{"1", Mark::kAddQueued}});
  machine.mark = Mark::kAddQueued;
  CHECK(cloud(machine, held(1, true)).empty());
  JobHost member = held(1, true);
  member.is_member = true;
  CHECK(cloud(machine, member) == Actions{SetMark{"1", Mark::kAdded}});
  machine.mark = Mark::kAdded;
  CHECK(cloud(machine, member).empty());
  // Somebody removes its line: it is not put back, and stays.
  CHECK(cloud(machine, held(0, true)) == Actions{SetMark{"1", Mark::kRemovalQueued}});
  machine.mark = Mark::kRemovalQueued;
  CHECK(cloud(machine, held(0, false)) == Actions{SetMark{"1", Mark::kRemoved}});
  machine.mark = Mark::kRemoved;
  CHECK(cloud(machine, held(0, false)).empty());
}

TEST_CASE("fleet plan: a machine that is asked for goes when its workers have", "[fleet]") {
  Machine machine = running(1, "n2", true);
  machine.is_asked = true;
  machine.deadline = 99.5;
  JobHost host = held(1, true);
  CHECK(cloud(machine, host) == Actions{Leave{"n2", 99.5}, SetMark{"1", Mark::kRemovalQueued}});
  host.is_leaving = true;
  machine.mark = Mark::kRemovalQueued;
  CHECK(cloud(machine, host).empty());
  const Actions last{SetMark{"1", Mark::kRemoved}, DropHost{"n2"},
                     LetGo{"1", "it is wanted no more, and its workers are gone"}};
  CHECK(cloud(machine, held(1, false, 1)) == last);
  // Its owner holds it back for the job.
  machine.state = MachineState::kEnding;
  machine.is_held_back = true;
  CHECK(cloud(machine, host).empty());
  CHECK(cloud(machine, held(1, false, 1)) == Actions{SetMark{"1", Mark::kRemoved}, Confirm{"1"}});
}

TEST_CASE("fleet plan: who goes by a notice leaves, and is not let go", "[fleet]") {
  Machine machine = ending(1, "n2");
  CHECK(cloud(machine, held(1, true)).empty());
  machine.deadline = 7;
  CHECK(cloud(machine, held(1, true)) ==
        std::vector<FleetAction>{Leave{"n2", 7}, SetMark{"1", Mark::kRemovalQueued}});
  CHECK(cloud(machine, held(1, false, 1)).empty());
}

TEST_CASE("fleet plan: a host of the launch is never let go, and comes back by its name",
          "[fleet]") {
  Machine machine = running(1, "n2");
  JobHost host{.in_file = 2, .is_running = true, .is_own = true};
  CHECK(cloud(machine, host) == std::vector<FleetAction>{SetMark{"1", Mark::kBase}});
  machine.mark = Mark::kBase;
  machine.is_asked = true;
  CHECK(cloud(machine, host).empty());
  // Another machine with its name, while workers of the former one leave, and afterwards.
  machine = running(2, "n2");
  host.is_leaving = true;
  CHECK(cloud(machine, host).empty());
  host.is_running = false;
  host.empty = 2;
  CHECK(cloud(machine, host) == Actions{AddHost{"n2", 2, "2"}});
}

TEST_CASE("fleet: those that wait go before those that run, the newest first", "[fleet]") {
  const std::vector<Machine> all = {running(1, "n2", true), pending(2), running(3, "n3", true),
                                    ending(4, "n4")};
  const auto chosen = newest_machines(all, 2);
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0].id == "2");
  CHECK(chosen[1].id == "3");
  CHECK(newest_machines(all, 9).size() == 3);
}

}  // namespace
}  // namespace dt
