#include "core/launch/holders.h"

#include <algorithm>

#include "core/launch/holder_plan.h"
#include "test/support/catch.h"

namespace dt {
namespace {

Holder pending(std::uint32_t id) { return {id, HolderState::kPending, "", "Priority", 1, false}; }
Holder running(std::uint32_t id, std::string node, bool is_joined = false) {
  return {id, HolderState::kRunning, std::move(node), "None", 1, is_joined};
}
JobHost held(std::uint32_t in_file, bool is_running) {
  return {in_file, 0, is_running, false, true};
}

std::vector<HolderAction> actions(const std::vector<Holder>& holders, const JobWish& wish,
                                  const std::vector<std::string>& unheld = {}) {
  return plan_holders(holders, wish, unheld).actions;
}

TEST_CASE("holders: what squeue prints is read", "[holders]") {
  const auto holders = parse_holders(
      "12|RUNNING|n2|None|dtlaunch:j slots=8 joined\n"
      "11|PENDING||Priority|dtlaunch:j\n"
      "13|CONFIGURING|n3|None|dtlaunch:j\n"
      "14|COMPLETING|n4|None|dtlaunch:j joined\n",
      "j");
  REQUIRE(holders);
  REQUIRE(holders->size() == 4);
  CHECK((*holders)[0] == pending(11));
  CHECK((*holders)[1] == Holder{12, HolderState::kRunning, "n2", "None", 8, true});
  CHECK((*holders)[2].state == HolderState::kPending);
  CHECK((*holders)[2].node.empty());
  CHECK((*holders)[3].state == HolderState::kEnding);
  CHECK(parse_holders("", "j")->empty());
}

TEST_CASE("holders: one line of another form spoils the whole answer", "[holders]") {
  for (const char* text : {"x|RUNNING|n2|None|dtlaunch:j\n", "12|RUNNING|n2|None|dtlaunch:jj\n",
                           "12|RUNNING|n2|None|(null)\n", "slurm_load_jobs error\n", "12\n"})
    CHECK_FALSE(parse_holders(std::string("11|PENDING||Priority|dtlaunch:j\n") + text, "j"));
}

TEST_CASE("holders: a comment says what parse_holders reads", "[holders]") {
  const std::vector<std::string> words = {"-p", "gpu|a", "--comment=50%, \n\xe4", "-n[1-2]"};
  for (const std::uint32_t slots : {1U, 8U})
    for (const bool is_joined : {false, true})
      for (const auto& kept : {std::optional<std::vector<std::string>>(), std::optional(words),
                               std::optional(std::vector<std::string>())}) {
        const Holder holder{5, HolderState::kRunning, "n2", "None", slots, is_joined, kept, 41};
        const auto line = "5|RUNNING|n2|None|" + holder_comment("j", holder) + "\n";
        INFO(line);
        const auto holders = parse_holders(line, "j");
        REQUIRE(holders);
        CHECK(holders->front() == holder);
      }
}

TEST_CASE("holders: half an encoded byte in a comment is text", "[holders]") {
  for (const char* half : {"%", "%4", "%zz"}) {
    const auto holders =
        parse_holders(fmt::format("5|RUNNING|n2|None|dtlaunch:j keep={}", half), "j");
    REQUIRE(holders);
    CHECK(holders->front().kept == std::vector<std::string>{half});
  }
}

TEST_CASE("holders: the first of a node's holders is the one that joined", "[holders]") {
  const auto holders = parse_holders(
      "41|RUNNING|n2|None|dtlaunch:j\n40|RUNNING|n2|None|dtlaunch:j joined\n"
      "39|COMPLETING|n2|None|dtlaunch:j\n38|RUNNING|n3|None|dtlaunch:j\n",
      "j");
  REQUIRE(holders);
  REQUIRE(holder_on(*holders, "n2"));
  CHECK(holder_on(*holders, "n2")->id == 40);
  CHECK(!holder_on(*holders, "n4"));
  CHECK(!parse_holders("slurm_load_jobs error: Unable to contact slurm controller\n", "j"));
}

TEST_CASE("holders: the user's words give way to what the holder is found by", "[holders]") {
  HolderOrder order{.job = "j", .log = "/f/%j.log", .excluded = {"n1", "n2"}, .words = {"-N", "2"}};
  const auto words = submit_words(order);
  const auto at = [&words](std::string_view word) { return std::ranges::find(words, word); };
  CHECK(at("--exclude=n1,n2") < at("-N"));
  CHECK(at("--exclusive") < at("-N"));
  CHECK(at("-N") < at("--nodes=1"));
  CHECK(at("--job-name=dt+j") != words.end());
  CHECK(at("--comment=dtlaunch:j") != words.end());
  order.is_kept = true;
  order.replaces = 41;
  CHECK(submit_words(order).back() == "--comment=dtlaunch:j for=41 keep=-N,2");
}

TEST_CASE("holders: paths and names reach the script's words whole", "[holders]") {
  const std::string script =
      holder_script({.job = "j", .agent = "/it's here/dtagent", .lonely_s = 7});
  CHECK(script.starts_with("#!/bin/sh\n"));
  CHECK(script.find("'/it'\\''s here/dtagent'") != std::string::npos);
  CHECK(script.find("--lonely-timeout 7") != std::string::npos);
}

TEST_CASE("holders: people read how many are asked for and why some wait", "[holders]") {
  CHECK(holders_for_people({}).empty());
  CHECK(holders_for_people({running(1, "n2"), pending(2)}) == "2 asked for, 1 pending (Priority)");
  CHECK(holders_for_people({running(1, "n2")}) == "1 asked for");
}

TEST_CASE("holder plan: a node joins once, whoever looks and however often", "[holders]") {
  JobWish wish{.wanted = 1};
  CHECK(actions({pending(1)}, wish).empty());
  CHECK(actions({running(1, "n2")}, wish) == std::vector<HolderAction>{AddHost{"n2", 1}});
  // The one who added it died before it was marked.
  wish.hosts["n2"] = held(1, false);
  wish.wanted = 2;
  CHECK(actions({running(1, "n2")}, wish) == std::vector<HolderAction>{MarkJoined{1, 1}});
  CHECK(actions({running(1, "n2", true)}, wish).empty());
}

TEST_CASE("holder plan: a host that was taken out is given back when its workers are gone",
          "[holders]") {
  JobWish wish;
  wish.hosts["n2"] = held(0, true);
  CHECK(actions({running(1, "n2", true)}, wish).empty());
  wish.hosts["n2"] = held(0, false);
  CHECK(actions({running(1, "n2", true)}, wish) ==
        std::vector<HolderAction>{CancelHolder{1, "its workers are gone"}});
  // All of them have left by themselves, or by a notice.
  wish.hosts["n2"] = {2, 2, false, false, true};
  CHECK(actions({running(1, "n2", true)}, wish).size() == 1);
  wish.hosts["n2"] = {2, 1, false, false, true};
  CHECK(actions({running(1, "n2", true)}, wish).empty());
  wish.hosts["n2"] = {1, 0, false, true, true};
  CHECK(actions({running(1, "n2", true)}, wish).size() == 1);
}

TEST_CASE("holder plan: a new holder of a node waits for the end of the workers of the one before",
          "[holders]") {
  JobWish wish;
  wish.hosts["n2"] = held(0, true);
  CHECK(actions({running(2, "n2")}, wish).empty());
  // Its lines are still there, without a worker.
  wish.hosts["n2"] = {1, 1, false, false, true};
  CHECK(actions({running(2, "n2")}, wish) == std::vector<HolderAction>{DropHost{"n2"}});
}

TEST_CASE("holder plan: a holder that comes when nobody is wanted is given back", "[holders]") {
  const JobWish wish{.max_workers = 3, .wanted = 2};
  const auto done = actions({running(1, "n2"), running(2, "n3")}, wish);
  REQUIRE(done.size() == 2);
  CHECK(done[0] == HolderAction(AddHost{"n2", 1}));
  REQUIRE(std::holds_alternative<CancelHolder>(done[1]));
  CHECK(std::get<CancelHolder>(done[1]).id == 2);
}

TEST_CASE("holder plan: one that comes before a host has gone waits for its place", "[holders]") {
  const JobWish leaving{.max_workers = 2, .wanted = 1, .lines = 2};
  CHECK(actions({running(58, "n3")}, leaving).empty());
  const JobWish gone{.max_workers = 2, .wanted = 1, .lines = 1};
  CHECK(actions({running(58, "n3")}, gone) == std::vector<HolderAction>{AddHost{"n3", 1}});
}

TEST_CASE("holder plan: what Slurm takes is asked for again where it is kept, once", "[holders]") {
  JobWish wish{.wanted = 1};
  wish.hosts["n2"] = held(1, true);
  Holder kept = running(41, "n2", true);
  kept.kept = {"-p", "gpu"};
  CHECK(actions({kept}, wish).empty());
  wish.hosts["n2"].is_leaving = true;
  CHECK(actions({kept}, wish) == std::vector<HolderAction>{ReplaceHolder{41, false}});
  CHECK(actions({running(41, "n2", true)}, wish).empty());
  // The one who asked died before it could say so; and the queue was not asked before the end.
  Holder other = pending(57);
  other.replaces = 41;
  CHECK(actions({kept, other}, wish) == std::vector<HolderAction>{ReplaceHolder{41, true}});
  // Its workers have left before anybody looked.
  kept.state = HolderState::kEnding;
  wish.hosts["n2"] = {1, 1, false, false, true, true};
  CHECK(actions({kept}, wish) == std::vector<HolderAction>{ReplaceHolder{41, false}});
  CHECK(actions({kept, other}, wish).empty());
  // An earlier holder of the node was taken.
  Holder next = running(58, "n2");
  next.kept = kept.kept;
  CHECK(actions({next}, wish) == std::vector<HolderAction>{DropHost{"n2"}});
  // Its line was removed.
  wish.hosts["n2"].in_file = 0;
  CHECK(actions({kept}, wish).empty());
  wish.hosts["n2"] = {1, 0, true, false, true, true};
  wish.lets_go = true;
  CHECK(actions({kept}, wish).empty());
}

TEST_CASE("holder plan: a node that the job has already is not held twice", "[holders]") {
  JobWish wish;
  wish.hosts["n2"] = held(1, true);
  auto done = actions({running(1, "n2", true), running(2, "n2")}, wish);
  REQUIRE(done.size() == 1);
  CHECK(std::get<CancelHolder>(done[0]).id == 2);
  wish.hosts["n1"] = {.in_file = 1, .is_running = true, .needs_holder = false};
  done = actions({running(1, "n2", true), running(3, "n1")}, wish);
  REQUIRE(done.size() == 1);
  CHECK(std::get<CancelHolder>(done[0]).id == 3);
}

TEST_CASE("holder plan: lines whose holder is gone are dropped at the second look", "[holders]") {
  JobWish wish;
  wish.hosts["n2"] = held(1, true);
  wish.hosts["n9"] = {.in_file = 1, .needs_holder = false};
  const HolderPlan first = plan_holders({}, wish, {});
  CHECK(first.actions.empty());
  CHECK(first.unheld == std::vector<std::string>{"n2"});
  CHECK(actions({}, wish, first.unheld) == std::vector<HolderAction>{DropHost{"n2"}});
  // One that ends still has it.
  CHECK(actions({{1, HolderState::kEnding, "n2", "", 1, true}}, wish, first.unheld).empty());
}

TEST_CASE("holder plan: a job that has ended gives everything back and drops nothing",
          "[holders]") {
  JobWish wish{.lets_go = true};
  wish.hosts["n4"] = held(1, false);
  const auto done = actions({pending(1), running(2, "n2", true), running(3, "n3")}, wish, {"n4"});
  CHECK(done.size() == 3);
  CHECK(std::ranges::all_of(
      done, [](const HolderAction& a) { return std::holds_alternative<CancelHolder>(a); }));
}

TEST_CASE("holders: those that wait go before those that run, the newest first", "[holders]") {
  const std::vector<Holder> all = {running(1, "n2", true),
                                   pending(2),
                                   running(3, "n3", true),
                                   {4, HolderState::kEnding, "n4", "", 1, true}};
  const auto chosen = newest_holders(all, 2);
  REQUIRE(chosen.size() == 2);
  CHECK(chosen[0].id == 2);
  CHECK(chosen[1].id == 3);
  CHECK(newest_holders(all, 9).size() == 3);
}

}  // namespace
}  // namespace dt
