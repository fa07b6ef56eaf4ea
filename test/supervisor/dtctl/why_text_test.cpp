#include "supervisor/dtctl/why_text.h"

#include "test/support/catch.h"

using namespace dt;

namespace {

constexpr const char* kStatus = R"json({
  "opaque":false,"waiting":"worker 1 has not come to it",
  "workers":[
    {"id":0,"host":"10.0.0.7","state":"MEMBER","why":"",
     "stalls":{"for_s":29.5,"waited_for":true,"process":"python3 (pid 7): in futex_wait"}},
    {"id":5,"host":"u@node7:2222","state":"STARTING","why":""}],
  "hosts":[
    {"host":"10.0.0.7","wanted":1,"link":"up","life":"alive","cooling_until_s":null,
     "given_up":false,"why":"","last_death":"worker 3 crashed (exit code 1)","check":"",
     "attempts":0,"restarts":1},
    {"host":"10.0.0.8","wanted":2,"link":"up","life":"alive","cooling_until_s":4.25,
     "given_up":false,"why":"prepare-data failed: exit code 3: the disk is full",
     "check":"prepare","attempts":2,"restarts":0},
    {"host":"10.0.0.9","wanted":1,"link":"none","life":"alive","cooling_until_s":null,
     "given_up":true,"why":"worker 3: killed by signal 9","check":"run","attempts":0,
     "restarts":4},
    {"host":"base","wanted":1,"link":"none","life":"alive","given_up":true,"attempts":0},
    {"host":"u@node7:2222","wanted":1,"link":"up","life":"alive","cooling_until_s":null,
     "given_up":false,"why":"","check":"","attempts":0,"restarts":0},
    {"host":"u@gone:2222","wanted":1,"link":"none","life":"alive","cooling_until_s":70.0,
     "given_up":false,"why":"u@gone:2222: connect: refused","check":"reach","attempts":1,
     "restarts":0,"reach_command":"ssh -F '/my config' -p 2222 -l u gone true"},
    {"host":"old","wanted":1,"link":"up","life":"alive","cooling_until_s":1.0,
     "given_up":false,"why":"preflight failed: clock: its clock is +90.0 s off",
     "check":"preflight","attempts":1,"restarts":0},
    {"host":"leaves","wanted":0,"link":"up","life":"alive",
     "leaving":{"why":"spot reclaim","in_s":65.5,"text":"its worker will leave at the next epoch"}},
    {"host":"left","wanted":0,"empty_places":2,"link":"none","life":"alive"},
    {"host":"silent","wanted":1,"link":"up","life":"suspect"},
    {"host":"cut","wanted":1,"link":"down","life":"lost"},
    {"host":"twin:1","wanted":1,"link":"up","life":"alive"},
    {"host":"twin:2","wanted":1,"link":"up","life":"alive"}],
  "file":{"base":["first (the master's)","base"]}})json";

std::string why(Host host) { return supervisor::why_text(kStatus, host).value(); }
std::string refusal(Host host) { return supervisor::why_text(kStatus, host).error().message; }

}  // namespace

TEST_CASE("why: the failed check, the next try, and what would make it pass", "[status]") {
  CHECK(why({"", "10.0.0.8", 0}) == R"(10.0.0.8: 2 workers wanted, connected to its agent
Last failure: prepare-data failed: exit code 3: the disk is full
Next try: number 3, in 4.2 s.
To pass: --prepare-data has to exit with 0 there. Its whole output: dtctl logs prepare-10.0.0.8
The next boundary waits: worker 1 has not come to it
)");
}

TEST_CASE("why: a host that is not like those of the launch", "[status]") {
  CHECK(why({"", "old", 0}) == R"(old: 1 worker wanted, connected to its agent
Last failure: preflight failed: clock: its clock is +90.0 s off
Next try: number 2, in 1.0 s.
To pass: mend what is named above. It is tried again by itself; at once when its line is removed from host_worker and added again. The same by hand: dtlaunch --check quick -H FILE
The next boundary waits: worker 1 has not come to it
)");
}

TEST_CASE("why: a host that is given up, one on its way, and one that has what it should",
          "[status]") {
  CHECK(why({"", "10.0.0.9", 0}).find("It is given up: it has used up --max-restarts.") !=
        std::string::npos);
  CHECK(why({"", "10.0.0.9", 0}).find("Next try") == std::string::npos);
  CHECK(why({"", "10.0.0.9", 0}).find("Remove its line") != std::string::npos);
  CHECK(why({"", "base", 0}).find("dtctl replace base NEW") != std::string::npos);
  CHECK(why({"", "node7", 0}).find("worker 5: STARTING") != std::string::npos);
  CHECK(why({"", "10.0.0.7", 0}) == R"(10.0.0.7: 1 worker wanted, connected to its agent
worker 0: MEMBER (a member); no step for 29 s; the others wait for it; python3 (pid 7): in futex_wait
Started again since worker 3 crashed (exit code 1): 1 restart
The next boundary waits: worker 1 has not come to it
)");
}

TEST_CASE("why: a host that goes away, and one that has", "[status]") {
  CHECK(why({"", "leaves", 0}) == R"(leaves: 0 workers wanted, connected to its agent
LEAVING: it goes away in 1 min 05 s, its worker will leave at the next epoch (spot reclaim). It stays by: dtctl leave leaves --cancel
The next boundary waits: worker 1 has not come to it
)");
  CHECK(why({"", "left", 0}).find("empty: 2 places. To fill: dtctl add left\n") !=
        std::string::npos);
}

TEST_CASE(
    "why: a host that cannot be reached is no host that is alive, and the line to try is whole",
    "[status]") {
  CHECK(why({"", "gone", 0}) == R"(u@gone:2222: 1 worker wanted, it could not be reached
Last failure: u@gone:2222: connect: refused
Next try: number 2, in 70.0 s.
To pass: this machine has to reach it and start an agent there. Try what dtlaunch does:
  ssh -F '/my config' -p 2222 -l u gone true
The next boundary waits: worker 1 has not come to it
)");
  CHECK(why({"", "10.0.0.9", 0}).find("no agent of this job is there") != std::string::npos);
  CHECK(why({"", "silent", 0}).find("its agent, which is silent") != std::string::npos);
  CHECK(why({"", "cut", 0}).find("cut off from its agent, which has been silent") !=
        std::string::npos);
}

TEST_CASE("why: a host of a job without a kvstore waits for that", "[status]") {
  const auto text = supervisor::why_text(
      R"({"not_open":"no worker has opened a kvstore yet (up 12 s): until one does, nothing joins",
          "hosts":[{"host":"b","wanted":1,"link":"none","life":"alive"}]})",
      {"", "b", 0});
  REQUIRE(text);
  CHECK(*text == R"(b: 1 worker wanted, no agent of this job is there
no worker has opened a kvstore yet (up 12 s): until one does, nothing joins.
)");
}

TEST_CASE("why: a host the job does not know, or a name of several, is refused by name",
          "[status]") {
  CHECK(refusal({"", "10.0.0.99", 0}).find("knows no host 10.0.0.99") != std::string::npos);
  CHECK(refusal({"", "twin", 0}).find("several hosts") != std::string::npos);
  CHECK(why({"", "twin", 2}).find("twin:2: 1 worker wanted") == 0);
  CHECK(refusal({"x", "10.0.0.7", 0}).find("knows no host") != std::string::npos);
  CHECK_FALSE(supervisor::why_text("garbage", {"", "a", 0}));
}
