#include "core/fleet/discovered_hosts.h"

#include "core/fleet/fleet_word.h"
#include "test/support/catch.h"

namespace dt {
namespace {

TEST_CASE("discovered hosts: what a script of Horovod's prints is read", "[fleet]") {
  const auto machines = parse_discovered(
      "# the cluster\n"
      "gpu1:4\n"
      "\n"
      "  gpu2 \r\n"
      "gpu3:2\tleave=90  # preempted",
      1000);
  REQUIRE(machines);
  REQUIRE(machines->size() == 3);
  CHECK((*machines)[0] ==
        Machine{.id = "gpu1", .state = MachineState::kReady, .host = "gpu1", .slots = 4});
  CHECK((*machines)[1].slots == 1);
  CHECK((*machines)[2].state == MachineState::kEnding);
  CHECK((*machines)[2].deadline == 1090);
  CHECK((*machines)[2].order == 2);
}

TEST_CASE("discovered hosts: output that is wrong anywhere counts nowhere", "[fleet]") {
  const std::pair<const char*, const char*> wrong[] = {
      {"", "no host is named"},
      {"# none\n\n", "no host is named"},
      {"gpu1\ngpu2:0\n", "\"gpu2:0\": a number of workers, 1 to 10000, was expected"},
      {"gpu1:4:4\n", "\"gpu1:4:4\": a number of workers"},
      {"gpu1 slots=4\n", "behind gpu1: leave=SECONDS or nothing was expected"},
      {"gpu1 leave=-1\n", "behind gpu1: leave=SECONDS"},
      {"gpu1 leave=1 2\n", "behind gpu1: leave=SECONDS"},
      {"gpu1\ngpu2\ngpu1:2\n", "gpu1 is named twice"},
      {"<html>\n", "\"<html>\" is no host"},
      {":4\n", "\":4\" is no host"},
      {"gpu\x1b[31m\n", "is no host"},
  };
  for (const auto& [text, why] : wrong) {
    INFO(text);
    const auto machines = parse_discovered(text, 0);
    REQUIRE_FALSE(machines);
    CHECK(machines.error().message.find(why) != std::string::npos);
    CHECK(machines.error().message.find('\x1b') == std::string::npos);
  }
}

TEST_CASE("fleet word: a provider is named, or what is expected is said", "[fleet]") {
  CHECK(parse_fleet("slurm")->kind == FleetWord::Kind::kSlurm);
  CHECK(parse_fleet("command:./d.sh -x 'a b'")->words == "./d.sh -x 'a b'");
  CHECK(parse_fleet("./d.sh -x")->kind == FleetWord::Kind::kProgram);
  CHECK(parse_fleet("./d.sh -x")->words == "./d.sh -x");
  CHECK(parse_fleet("aws:c --region x")->words == "c --region x");
  CHECK(parse_fleet("aws:c")->ours == "aws");
  for (const char* word : {"", "azure", "command", "slurm:", "d.sh /x"})
    CHECK(parse_fleet(word).error().message ==
          "aws:STACK, command:PROGRAM, kubernetes:STATEFULSET, slurm or the path of a provider's "
          "program (with a /) was expected");
  for (const char* word : {"aws", "aws:"})
    CHECK(parse_fleet(word).error().message == "the stack's name is missing: aws:NAME");
  for (const char* word : {"command:", "command:  "})
    CHECK(parse_fleet(word).error().message ==
          "the program that prints the hosts is missing: command:PROGRAM");
}

}  // namespace
}  // namespace dt
