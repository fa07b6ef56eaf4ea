#include "supervisor/dtctl/status_text.h"

#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/base/quantity.h"
#include "io/job/job_pointer.h"
#include "io/job/spec.h"
#include "test/support/catch.h"

using namespace dt;

TEST_CASE("status text: members, newcomers, cooling hosts and a refused edit in one table",
          "[status]") {
  const auto text = supervisor::status_text(R"({
    "job":"j1","state":"running","elastic":true,"opaque":false,"term":2,"generation":7,"epoch":4,
    "world_size":2,"uptime_s":3725.5,"pulse":{"text":"epoch 4, 2 workers, 2.6 s/epoch"},"waiting":"worker 1 has not arrived",
    "workers":[
      {"id":0,"rank":0,"host":"10.0.0.7","state":"MEMBER","why":"","pid":11,"opened":true,
       "progress":{"epoch":4,"step":120,"age_s":0.5,"steps_in_epoch":938,"samples_per_s":1277.4},
       "values":{"train_loss":0.31248,"learning_rate":0.1},"steps_per_s":19.96,
       "texts":{"overlap":"yes","phase":"warm-up\u001b[2J"},
       "own_step_s":0.0116,"waits_share":0.768,
       "resident_bytes":812000000,"output_age_s":74.9,"stalls":{"for_s":2.9,"process":"x"}},
      {"id":1,"rank":1,"host":"10.0.0.8","state":"MEMBER","why":"","pid":12,"opened":true,
       "progress":{"epoch":4,"step":119,"age_s":75},
       "stalls":{"for_s":74.2,"waited_for":true,"process":"python3 (pid 12): stopped (T) in x"}},
      {"id":12,"rank":null,"host":"u@node7:2222","state":"STARTING","why":"ssh is connecting",
       "pid":0,"opened":false,"progress":null}],
    "servers":[{"id":0,"host":"10.0.0.7","state":"listening","address":"10.0.0.7","port":9000},
      {"id":1,"host":"10.0.0.8","state":"listening","address":"10.0.0.8","port":41002,
       "device":"cuda:0","device_note":"NVIDIA H200, sm_90, 139 GB"},
      {"id":2,"host":"10.0.0.9","state":"listening","address":"10.0.0.9","port":9001,
       "device":"cpu","device_note":""},
      {"id":3,"host":"10.0.0.9","state":"starting","address":"","port":0,
       "device":"","device_note":""}],
    "hosts":[
      {"host":"10.0.0.7","wanted":1,"link":"up","prepared":true,"cooling_until_s":null,
       "given_up":false,"why":"","attempts":0,"restarts":0},
      {"host":"10.0.0.8","wanted":1,"link":"up","life":"suspect","prepared":true,
       "cooling_until_s":null,"given_up":false,"why":"","attempts":0,"restarts":0},
      {"host":"10.0.0.9","wanted":1,"link":"none","prepared":false,"cooling_until_s":4.2,
       "given_up":false,"why":"connection refused","attempts":3,"restarts":1},
      {"host":"10.0.0.10","wanted":1,"link":"none","prepared":false,"cooling_until_s":null,
       "given_up":true,"why":"too many restarts","attempts":9,"restarts":3}],
    "file":{"path":"/j/host_worker","accepted":["10.0.0.7","10.0.0.9"],
            "base":["10.0.0.7","10.0.0.8"],
            "kept":["10.0.0.8"],"refused":{"why":"host_worker:3:1: no"}},
    "goodput":{"share":1.0,"worker_s":45000.0},
    "kept_out":[{"by":"server 0","refused":41,"dropped":2,"fenced":7}],
    "volume":{"stalled_s":12.0,"dropped_bytes":0},"log_lines":3,
    "log_foreign":"/j/host_worker_log.foreign","logs":"/j/logs"})");
  REQUIRE(text);
  CHECK(*text == R"(job j1: running, up 1 h 02 min
epoch 4, 2 workers, 2.6 s/epoch
epoch 4: 2 train, 1 starts
the next boundary waits: worker 1 has not arrived
worker-hours 12.5
the shared volume has not answered for 12 s
server 0 kept out: 41 connections of strangers, 2 that broke the rules, 7 requests of workers that are no members

WORKER  RANK  HOST          STATE     EPOCH  STEP        STEPS/S  SAMPLES/S  OWN/STEP  WAITS  RSS     OUTPUT          PID  WHY
0       0     10.0.0.7      MEMBER    4      120 of 938  20.0     1277.4     11.6 ms   77 %   812 MB  1 min 14 s ago  11   -
1       1     10.0.0.8      MEMBER    4      119         -        -          -         -      -       -               12   no step for 1 min 14 s; the others wait for it; python3 (pid 12): stopped (T) in x
12      -     u@node7:2222  STARTING  -      -           -        -          -         -      -       -               0    ssh is connecting
worker 0 reports learning_rate 0.1, train_loss 0.3125

WORKER  REPORTS
0       overlap yes, phase warm-up\x1b[2J

SERVER  HOST      STATE      ADDRESS              DEVICE
0       10.0.0.7  listening  10.0.0.7 port 9000   -
1       10.0.0.8  listening  10.0.0.8 port 41002  cuda:0, NVIDIA H200, sm_90, 139 GB
2       10.0.0.9  listening  10.0.0.9 port 9001   cpu
3       10.0.0.9  starting   -                    -

HOST       WANTED  LINK     ATTEMPTS  RESTARTS  NEXT TRY  WHY
10.0.0.8   1       suspect  0         0         -         -
10.0.0.9   1       none     3         1         in 4 s    connection refused
10.0.0.10  1       none     9         3         given up  too many restarts

/j/host_worker, last accepted: 10.0.0.7 10.0.0.9
base, which the file may not remove: 10.0.0.7 10.0.0.8
10.0.0.8 is a host of the initial launch: its workers stay
the present content is refused: host_worker:3:1: no
host_worker_log has 3 lines
others have changed it: what they left is /j/host_worker_log.foreign
)");
}

TEST_CASE("status text: an older or broken supervisor's answer is shown as far as it goes",
          "[status]") {
  CHECK(supervisor::status_text("{}"));
  CHECK(supervisor::status_text(R"({"workers":7,"hosts":[1,"x",null],"file":3,"volume":[]})"));
  CHECK_FALSE(supervisor::status_text("[]"));
  CHECK_FALSE(supervisor::status_text("no json"));
  CHECK_FALSE(supervisor::status_text(""));
}

TEST_CASE("status text: what nobody, one and two workers do, and the lost time", "[status]") {
  const auto line = [](const std::string& status) {
    const std::string text = supervisor::status_text(status).value();
    const auto from = text.find('\n') + 1;
    return text.substr(from, text.find("\n\n") - from);
  };
  CHECK(line(R"({"epoch":4,"workers":[{"state":"WARM"}]})") == "epoch 4: 0 train, 1 starts");
  CHECK(
      line(R"({"epoch":4,"workers":[{"state":"MEMBER"},{"state":"SEEN"},{"state":"STARTING"}]})") ==
      "epoch 4: 1 trains, 2 start");
  CHECK(line(R"({"epoch":null,"workers":[{"state":"MEMBER"},{"state":"MEMBER"},
      {"state":"LEAVING"},{"state":"STOPPING"}]})") == "2 train, 1 leaves, 1 ends");
  CHECK(line(R"({"on_change":"restart","group_restarts":3,"workers":[{"state":"MEMBER"}]})") ==
        "restart 3: 1 runs");
  CHECK(line(R"({"workers":[],"goodput":{"share":0.9,"worker_s":50,
      "lost_s":{"death":5.0,"join":0.0,"server":0.25}}})") ==
        "0 train\nlost of 50 worker-seconds: death 5.0 s, server 0.2 s");
  CHECK(line(R"({"workers":[],"goodput":{"share":0.995,"worker_s":50,"lost_s":{"death":0.3}}})") ==
        "0 train");
  CHECK(line(R"({"workers":[],"hosts":[{"host":"b","leaving":
      {"why":"kernel update","in_s":null,"text":"its worker will leave at the next epoch"}}]})") ==
        "0 train\nLEAVING b: its worker will leave at the next epoch (kernel update)");
}

TEST_CASE("quantities: the noun agrees with its number, and sizes have a unit", "[status]") {
  CHECK(count_text(0, "worker") == "0 workers");
  CHECK(count_text(1, "worker") == "1 worker");
  CHECK(count_text(2, "worker") == "2 workers");
  CHECK(bytes_text(43'210) == "43 KB");
  CHECK(bytes_text(812e6) == "812 MB");
  CHECK(bytes_text(3.44e9) == "3.4 GB");
}

TEST_CASE("status text: GPUs, one of them lost, and a driver that does not answer", "[status]") {
  const auto text = supervisor::status_text(
      R"({"gpus":[
        {"host":"node1","index":0,"uuid":"GPU-a","name":"NVIDIA H100","workers":[0,3],
         "busy_percent":97,"memory_used":21474836480,"memory_total":85899345920,
         "temperature_c":61,"power_w":512.5,"trouble":[]},
        {"host":"node1","index":1,"uuid":"GPU-b","name":"NVIDIA H100","workers":[],
         "busy_percent":null,"memory_used":null,"memory_total":85899345920,
         "temperature_c":null,"power_w":null,"trouble":["GPU is lost","Xid 79"]},
        {"host":"node2","index":null,"trouble":["NVML has not answered for more than 30 s: x"]}]})");
  REQUIRE(text);
  CHECK(text->find(R"(
GPU  HOST   NAME         WORKERS  BUSY  MEMORY         TEMP  POWER  TROUBLE
0    node1  NVIDIA H100  0,3      97 %  20.0/80.0 GiB  61 C  512 W  -
1    node1  NVIDIA H100  -        -     -              -     -      GPU is lost; Xid 79
-    node2  -            -        -     -              -     -      NVML has not answered for more than 30 s: x
)") != std::string::npos);
}

TEST_CASE("status text: who is about to leave, and why nothing joins", "[status]") {
  const auto text = supervisor::status_text(
      R"({"not_open":"no worker has opened a kvstore yet (up 12 s): until one does, nothing joins",
          "elastic":false,"uptime_s":180000,
          "workers":[{"id":3,"rank":1,"host":"b","state":"MEMBER","leaves_next":true,"pid":7,
                      "why":"leaves at the next epoch"}]})");
  REQUIRE(text);
  CHECK(text->find("up 2 d 02 h\n") != std::string::npos);
  CHECK(text->find("\nno worker has opened a kvstore yet (up 12 s)") != std::string::npos);
  CHECK(text->find(
            "LEAVING  -      -     -        -          -         -      -    -       7    leaves "
            "at the next epoch\n") != std::string::npos);
  CHECK(text->find("not elastic: nothing joins or leaves") != std::string::npos);
}

TEST_CASE("status text: a thousand workers fit on a screen, or have a line each", "[status]") {
  std::string workers;
  std::string hosts;
  std::string accepted;
  for (int i = 0; i < 1000; ++i) {
    const auto item = [i](const char* format) {
      return (i == 0 ? "" : ",") + fmt::format(fmt::runtime(format), fmt::arg("i", i));
    };
    workers += item(i == 417 ? R"({{"id":{i},"rank":null,"host":"n{i:03}","state":"SEEN",
                                    "why":"waits for its host's next try: refused","pid":0}})"
                             : R"({{"id":{i},"rank":{i},"host":"n{i:03}","state":"MEMBER","why":"",
                                    "pid":{i},"progress":{{"epoch":3,"step":{i}}}}})");
    hosts += item(i < 40 ? R"({{"host":"n{i:03}","wanted":1,"link":"none","cooling_until_s":{i},
                                "attempts":3,"restarts":0,"why":"n{i:03} port 22: refused"}})"
                         : R"({{"host":"n{i:03}","wanted":1,"link":"up","why":""}})");
    accepted += item(R"("n{i:03}")");
  }
  const std::string status = fmt::format(
      R"({{"elastic":true,"workers":[{}],"hosts":[{}],"file":{{"path":"f","accepted":[{}]}}}})",
      workers, hosts, accepted);
  const auto text = supervisor::status_text(status);
  REQUIRE(text);
  const std::string tables = text->substr(text->find("WORKER"));
  CHECK(
      tables ==
      R"(WORKER         RANK           HOST                STATE   EPOCH  STEP   STEPS/S  SAMPLES/S  OWN/STEP  WAITS  RSS  OUTPUT  PID  WHY
0-416,418-999  0-416,418-999  n[000-416,418-999]  MEMBER  3      0-999  -        -          -         -      -    -       -    -
417            -              n417                SEEN    -      -      -        -          -         -      -    -       0    waits for its host's next try: refused

HOST        WANTED  LINK  ATTEMPTS  RESTARTS  NEXT TRY   WHY
n[000-039]  1       none  3         0         in 0-39 s  HOST port 22: refused

f, last accepted: n[000-999]
)");
  const auto all = supervisor::status_text(status, true);
  REQUIRE(all);
  CHECK(std::count(all->begin(), all->end(), '\n') > 1040);
  CHECK(all->find("n039 port 22: refused\n") != std::string::npos);
  CHECK(all->find(" n417 n418 ") != std::string::npos);
}

TEST_CASE("status text: workers that wait for each other, and one that the others wait for",
          "[status]") {
  const auto text = supervisor::status_text(R"json({
    "standstill":{"for_s":12,"text":"all workers wait for each other: ...","ends_in_s":588},
    "balance":{"share":0.54,"text":"54 % (worker 1 on b keeps 1 waiting)"},
    "workers":[{"id":0,"waits":{"for_s":12,"text":"in a for worker 1"}},
               {"id":1,"slowest":"slowest: 102 ms of own work a step, the others 11 ms"}]})json");
  REQUIRE(text);
  for (const char* line :
       {"\nnothing has moved for 12 s: all workers wait for each other: ...; "
        "the job ends in 9 min 48 s (--hang-timeout)\n",
        "\nbalance 54 % (worker 1 on b keeps 1 waiting)\n", "  waits in a for worker 1 (12 s)\n",
        "  slowest: 102 ms of own work a step, the others 11 ms\n"})
    CHECK_THAT(*text, Catch::Matchers::Contains(line));
}

TEST_CASE("status text: a rollback under way", "[status]") {
  const auto text = supervisor::status_text(
      R"({"rolling_back":{"to_epoch":6,"why":"server 1 on b ended with 1"}})");
  REQUIRE(text);
  CHECK(text->find("going back to the checkpoint of epoch 6: server 1 on b ended with 1\n") !=
        std::string::npos);
}

TEST_CASE("job pointer: absent, whole, ended, half-written", "[status]") {
  char folder[] = "/tmp/dtp.XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const std::string dir = folder;
  const auto write = [&](const std::string& text) {
    std::ofstream(io::pointer_file(dir)) << text;
    return io::read_job_pointer(dir);
  };
  const auto absent = io::read_job_pointer(dir);
  REQUIRE_FALSE(absent);
  CHECK(absent.error().kind == ErrorKind::kUnavailable);
  std::filesystem::create_directory(io::marker_dir(dir));
  const std::string start =
      R"({"job":"j","master":"m","pid":7,"socket":"/s","state_dir":"/d","ended":)";
  const auto running = write(start + "null}");
  REQUIRE(running);
  CHECK(running->socket == "/s");
  CHECK_FALSE(running->ended);
  const auto ended = write(start + R"({"exit_code":3,"message":"why"}})");
  REQUIRE(ended);
  REQUIRE(ended->ended);
  CHECK(ended->ended->exit_code == 3);
  const auto trouble = [&](const std::string& text) {
    const auto read = write(text);
    REQUIRE_FALSE(read);
    return read.error().message;
  };
  const std::string file = io::pointer_file(dir);
  CHECK(trouble(start) ==
        file + " cannot be understood (it is no JSON): if no job runs in this folder, rm " + file);
  CHECK_THAT(trouble("7"), Catch::Contains("(it is no JSON object)"));
  CHECK_THAT(trouble(R"({"job":7})"), Catch::Contains("(\"job\" is no text)"));
  CHECK_THAT(trouble(R"({"job":"j"})"), Catch::Contains("(\"master\" is missing)"));
  CHECK_THAT(trouble(start + R"({"exit_code":1.5,"message":"why"}})"),
             Catch::Contains("(\"exit_code\": 1.5 is no whole number"));
  std::filesystem::remove_all(dir);
}

TEST_CASE("status text: a journal that has no room, or little, is told", "[status]") {
  const auto head = [](const char* journal) {
    const auto text = supervisor::status_text(
        fmt::format(R"({{"job":"j1","state":"running","journal":{}}})", journal));
    REQUIRE(text);
    return *text;
  };
  CHECK(head(R"({"waits_s":75.5,"trouble":"write journal /s/journal: No space left"})")
            .find("No space left: nothing is decided for 1 min 15 s; training waits at the next "
                  "boundary\n") != std::string::npos);
  CHECK(head(R"({"waits_s":0.0,"trouble":"8 kB are left for the journal"})")
            .find("\n8 kB are left for the journal\n") != std::string::npos);
  CHECK(head(R"({"waits_s":0.0,"trouble":""})").find("journal") == std::string::npos);
}

TEST_CASE("status text: what a terminal would obey is shown", "[status]") {
  const auto text = supervisor::status_text(R"({"job":"j1","state":"running","hosts":[
      {"host":"a","wanted":1,"link":"down","given_up":true,"why":"\u001b]0;owned\u0007","attempts":1,
       "restarts":0,"cooling_until_s":null}]})");
  REQUIRE(text);
  CHECK(text->find("\\x1b]0;owned\\x07") != std::string::npos);
  CHECK(text->find('\x1b') == std::string::npos);
}
