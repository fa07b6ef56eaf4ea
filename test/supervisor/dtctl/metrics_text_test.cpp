#include "supervisor/dtctl/metrics_text.h"

#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "test/support/catch.h"

using namespace dt;

namespace {

std::string metrics(std::string_view json) {
  const auto text = supervisor::metrics_text(json);
  REQUIRE(text);
  return *text;
}

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("metrics: a running job's figures, in seconds, bytes and shares", "[metrics]") {
  const std::string text = metrics(R"({"job":"j1","state":"running","epoch":4,"world_size":2,
    "uptime_s":3725.5,"rolling_back":null,
    "pulse":{"epoch_s":2.5,"restarts":3,"boundaries":4,"boundaries_s":0.5,"last_boundary_s":0.125},
    "goodput":{"share":0.998,"worker_s":7000,"lost_s":{"boundary":9.5,"server recovery":4}},
    "workers":[
      {"id":0,"rank":0,"host":"n1","state":"MEMBER","steps_per_s":20,"resident_bytes":812000000,
       "progress":{"epoch":4,"step":120,"samples_total":7680,"samples_per_s":1280},
       "values":{"train_loss":0.25}},
      {"id":7,"rank":null,"host":"n2","state":"STARTING","progress":null,"stalls":null}],
    "servers":[{"id":0,"host":"n1","state":"listening","resident_bytes":5000000,"silent_s":null}],
    "hosts":[{"host":"n1","life":"alive","given_up":false},
             {"host":"n2","life":"lost","given_up":true}],
    "gpus":[{"host":"n1","index":0,"uuid":"GPU-a","busy_percent":97,"memory_used":21474836480},
            {"host":"n2","index":null,"trouble":["no answer"]}],
    "kept_out":[{"by":"server 0","refused":41,"dropped":2,"fenced":7}],
    "file":{"refused":{"why":"no"}},
    "volume":{"stalled_s":12.0,"dropped_bytes":0,"queue_length":3,"queue_bytes":4096}})");
  for (const char* line : {
           "# HELP dtlaunch_epoch The present epoch.",
           "# TYPE dtlaunch_epoch gauge",
           R"(dtlaunch_epoch{job_id="j1"} 4)",
           R"(dtlaunch_job_state{job_id="j1",state="running"} 1)",
           R"(dtlaunch_job_state{job_id="j1",state="stopping"} 0)",
           R"(dtlaunch_uptime_seconds{job_id="j1"} 3725.5)",
           "# TYPE dtlaunch_boundary_duration_seconds summary",
           R"(dtlaunch_boundary_duration_seconds_sum{job_id="j1"} 0.5)",
           R"(dtlaunch_boundary_duration_seconds_count{job_id="j1"} 4)",
           R"(dtlaunch_last_boundary_duration_seconds{job_id="j1"} 0.125)",
           "# TYPE dtlaunch_worker_restarts_total counter",
           R"(dtlaunch_worker_restarts_total{job_id="j1"} 3)",
           R"(dtlaunch_goodput_ratio{job_id="j1"} 0.998)",
           R"(dtlaunch_lost_worker_seconds_total{job_id="j1",cause="server recovery"} 4)",
           R"(dtlaunch_workers{job_id="j1",state="member"} 1)",
           R"(dtlaunch_workers{job_id="j1",state="starting"} 1)",
           R"(dtlaunch_workers{job_id="j1",state="warm"} 0)",
           R"(dtlaunch_step{job_id="j1"} 120)",
           R"(dtlaunch_samples_per_second{job_id="j1"} 1280)",
           R"(dtlaunch_worker_info{job_id="j1",worker="0",host="n1",rank="0",state="member"} 1)",
           R"(dtlaunch_worker_info{job_id="j1",worker="7",host="n2",rank="",state="starting"} 1)",
           R"(dtlaunch_worker_samples_total{job_id="j1",worker="0",host="n1"} 7680)",
           R"(dtlaunch_worker_value{job_id="j1",worker="0",host="n1",name="train_loss"} 0.25)",
           R"(dtlaunch_server_resident_bytes{job_id="j1",server="0",host="n1"} 5000000)",
           R"(dtlaunch_hosts{job_id="j1",life="lost"} 1)",
           R"(dtlaunch_hosts_given_up{job_id="j1"} 1)",
           R"(dtlaunch_gpu_busy_ratio{job_id="j1",host="n1",gpu="0",uuid="GPU-a"} 0.97)",
           R"(dtlaunch_dropped_connections_total{job_id="j1",by="server 0"} 2)",
           R"(dtlaunch_host_worker_refused{job_id="j1"} 1)",
           R"(dtlaunch_rolling_back{job_id="j1"} 0)",
           R"(dtlaunch_volume_stall_seconds{job_id="j1"} 12)",
           R"(dtlaunch_volume_queue_bytes{job_id="j1"} 4096)",
       }) {
    CAPTURE(line);
    CHECK(has_line(text, line));
  }
  // Of what is not known nothing is said.
  CHECK(text.find("silence") == std::string::npos);
  CHECK(text.find("worker_stall") == std::string::npos);
  CHECK(text.find("host=\"n2\",gpu") == std::string::npos);
}

TEST_CASE("metrics: label values are escaped, and no terminal obeys them", "[metrics]") {
  const std::string text =
      metrics(R"({"job":"a\"b\\c","workers":[{"id":1,"host":"x\ny\u001b[2J","state":"MEMBER"}]})");
  CHECK(text.find(R"({job_id="a\"b\\c",worker="1",host="x\\x0ay\\x1b[2J",rank="")") !=
        std::string::npos);
  CHECK(text.find('\x1b') == std::string::npos);
}

TEST_CASE("metrics: every sample has its family's HELP and TYPE before it, once", "[metrics]") {
  std::istringstream lines(metrics(
      R"({"job":"j","state":"running","pulse":{"boundaries":1,"boundaries_s":2.0,"restarts":0},
          "workers":[{"id":1,"host":"h","state":"MEMBER","steps_per_s":1e300,"resident_bytes":1},
                     {"id":2,"host":"h","state":"WARM","steps_per_s":0.001}]})"));
  std::string line;
  std::set<std::string> families;
  std::set<std::string> samples;
  std::string family;
  const std::regex sample(
      R"re((dtlaunch_[a-z_]+)(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\}) (\S+))re");
  while (std::getline(lines, line)) {
    CAPTURE(line);
    std::smatch parts;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      CHECK(families.insert(family).second);
      CHECK(line.back() == '.');
      REQUIRE(std::getline(lines, line));
      CHECK(line.starts_with("# TYPE " + family + " "));
      const bool is_counter = line.ends_with(" counter");
      CHECK(family.ends_with("_total") == is_counter);
    } else {
      REQUIRE(std::regex_match(line, parts, sample));
      CHECK(parts[1].str().starts_with(family));
      CHECK(samples.insert(parts[1].str() + parts[2].str()).second);
      CHECK_NOTHROW(std::stod(parts[4].str()));
    }
  }
  CHECK(families.size() > 5);
}

TEST_CASE("metrics: an older or broken supervisor's answer is read as far as it goes",
          "[metrics]") {
  CHECK(supervisor::metrics_text("{}"));
  CHECK(supervisor::metrics_text(
      R"({"job":7,"workers":7,"hosts":[1,"x",null],"pulse":[],"goodput":3,"file":3,"gpus":[{}]})"));
  CHECK_FALSE(supervisor::metrics_text("[]"));
  CHECK_FALSE(supervisor::metrics_text("no json"));
}
