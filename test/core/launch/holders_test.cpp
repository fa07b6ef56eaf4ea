#include "core/launch/holders.h"

#include <algorithm>

#include "test/support/catch.h"

namespace dt {
namespace {

Machine holder(std::uint32_t id, MachineState state, std::string host, std::string why,
               std::uint32_t slots = 1, Mark mark = Mark::kNone) {
  return {.id = std::to_string(id),
          .state = state,
          .host = std::move(host),
          .why = std::move(why),
          .slots = slots,
          .mark = mark,
          .order = id};
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
  CHECK((*holders)[0] == holder(11, MachineState::kPending, "", "Priority"));
  CHECK((*holders)[1] == holder(12, MachineState::kReady, "n2", "", 8, Mark::kAdded));
  CHECK((*holders)[2].state == MachineState::kPending);
  CHECK((*holders)[2].host.empty());
  CHECK((*holders)[3].state == MachineState::kEnding);
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
        Machine said = holder(5, MachineState::kReady, "n2", "", slots,
                              is_joined ? Mark::kAdded : Mark::kNone);
        said.kept = kept;
        said.replaces = "41";
        const auto line = "5|RUNNING|n2|None|" + holder_comment("j", said) + "\n";
        INFO(line);
        const auto holders = parse_holders(line, "j");
        REQUIRE(holders);
        CHECK(holders->front() == said);
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
  CHECK(holder_on(*holders, "n2")->id == "40");
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
  order.replaces = "41";
  CHECK(submit_words(order).back() == "--comment=dtlaunch:j for=41 keep=-N,2");
}

TEST_CASE("holders: paths and names reach the script's words whole", "[holders]") {
  const std::string script =
      holder_script({.job = "j", .agent = "/it's here/dtagent", .lonely_s = 7});
  CHECK(script.starts_with("#!/bin/sh\n"));
  CHECK(script.find("'/it'\\''s here/dtagent'") != std::string::npos);
  CHECK(script.find("--lonely-timeout 7") != std::string::npos);
}

}  // namespace
}  // namespace dt
