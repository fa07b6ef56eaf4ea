#include "supervisor/dtctl/condition.h"

#include <nlohmann/json.hpp>

#include "test/support/catch.h"

using namespace dt;
using supervisor::Condition;

namespace {

constexpr const char* kJobStatus = R"json({
  "state":"running","epoch":3,"generation":4,"term":1,"world_size":2,
  "workers":[
    {"id":0,"host":"10.0.0.7","state":"MEMBER","stalls":null},
    {"id":2,"host":"10.0.0.8","state":"MEMBER","stalls":{"process":"python3: stopped (T)"}},
    {"id":5,"host":"10.0.0.8","state":"LEAVING","stalls":null},
    {"id":6,"host":"u@[::1]:2222","state":"STARTING","stalls":null}],
  "servers":[{"id":0,"state":"listening"},{"id":1,"state":"starting"}],
  "hosts":[{"host":"10.0.0.8","life":"lost","link":"down","why":"no answer for 4 s","attempts":2},
           {"host":"u@[::1]:2222","life":"alive","link":"up","why":"","attempts":0}],
  "checkpoint":{"newest":null,"trouble":"No space left on device"},
  "file":{"accepted":["10.0.0.8","10.0.0.8"],"kept":[],"refused":null},
  "volume":{"stalled_s":2.5}})json";

bool holds(std::string_view text) {
  auto condition = Condition::parse(text);
  REQUIRE(condition);
  condition->see_status(nlohmann::json::parse(kJobStatus));
  return condition->holds();
}

std::string refusal(std::string_view text) {
  const auto condition = Condition::parse(text);
  REQUIRE(!condition);
  return condition.error().message;
}

}  // namespace

TEST_CASE("condition: short names of what the status says", "[wait]") {
  for (const char* text : {"epoch=3", "epoch>=3", "epoch > 2", " epoch<4 ", "epoch!=4", "epoch==3",
                           "workers=2", "newcomers=1", "servers=1", "servers<2", "generation<=4",
                           "term=1", "state=running", "state ~ ^run", "members=0,2"})
    CHECK(holds(text));
  for (const char* text : {"epoch=2", "epoch>3", "workers=4", "members=0", "members=0,2,5",
                           "state=starting", "servers=2", "newcomers=0"})
    CHECK_FALSE(holds(text));
}

TEST_CASE("condition: what is not known holds for no number", "[wait]") {
  for (const char* text : {"checkpoint>=0", "checkpoint<9", "checkpoint=0"})
    CHECK_FALSE(holds(text));
  CHECK(holds("checkpoint=null"));
}

TEST_CASE("condition: one worker, server or host and its state", "[wait]") {
  for (const char* text :
       {"worker 0 member", "worker 2 MEMBER", "worker 5 leaving", "server 0 listening",
        "server 1 starting", "host 10.0.0.8 lost", "host 10.0.0.8 down", "host u@[::1]:2222 up"})
    CHECK(holds(text));
  for (const char* text : {"worker 1 member", "worker 6 member", "server 7 listening",
                           "host 10.0.0.9 alive", "host 10.0.0.8 up"})
    CHECK_FALSE(holds(text));
}

TEST_CASE("condition: any field of the status", "[wait]") {
  for (const char* text :
       {".volume.stalled_s>2", ".file.accepted=10.0.0.8,10.0.0.8", ".file.accepted.length=2",
        ".file.kept.length=0", ".file.refused=null", ".checkpoint.trouble~No space",
        ".workers.length=4", ".workers[state=MEMBER].length=2", ".workers[state!=MEMBER].length=2",
        ".workers[state=MEMBER,id=2].stalls.process ~ stopped \\(T\\)",
        ".hosts[host=10.0.0.8].attempts>=2", ".hosts.why~no answer", ".workers[id=9].stalls=null"})
    CHECK(holds(text));
  for (const char* text : {".workers[id=9].stalls.process~T", ".file.refused.why~x",
                           ".hosts[host=10.0.0.8].attempts>2", ".hosts[host=x].attempts>=0"})
    CHECK_FALSE(holds(text));
}

TEST_CASE("condition: events are counted, all or those whose line matches", "[wait]") {
  auto any = Condition::parse("event host_failed>=2").value();
  auto some =
      Condition::parse("event host_failed ~ 10\\.0\\.0\\.[0-9] .*(exit code|signal)").value();
  auto many = Condition::parse("event host_failed >= 2 ~ 10.0.0.8").value();
  for (Condition* c : {&any, &some, &many}) {
    c->see_event(R"({"n":0,"event":"host_failed","text":"10.0.0.8 refused the connection"})");
    c->see_event(R"({"n":1,"event":"host_failed_not","text":"10.0.0.8 exit code 1"})");
    CHECK_FALSE(c->holds());
    c->see_event("no JSON at all");
    c->see_event(R"({"n":2,"event":"host_failed","text":"10.0.0.9 ended with exit code 1"})");
  }
  CHECK(any.holds());
  CHECK(some.holds());
  CHECK_FALSE(many.holds());
  CHECK(many.shown() == "event host_failed >= 2 ~ 10.0.0.8 (1 so far)");
}

TEST_CASE("condition: the end, and that nothing is known without a supervisor", "[wait]") {
  auto ended = Condition::parse("ended").value();
  auto well = Condition::parse("ended=0").value();
  auto epoch = Condition::parse("epoch>=1").value();
  for (Condition* c : {&ended, &well, &epoch}) c->see_status(nlohmann::json::parse(kJobStatus));
  CHECK_FALSE(ended.holds());
  CHECK(epoch.holds());
  epoch.see_status(nullptr);
  CHECK_FALSE(epoch.holds());
  for (Condition* c : {&ended, &well, &epoch}) c->see_end(67);
  CHECK(ended.holds());
  CHECK_FALSE(well.holds());
  CHECK(well.shown() == "ended=0 (exit code 67)");
  CHECK_FALSE(epoch.holds());
}

TEST_CASE("condition: a refusal says what to write instead", "[wait]") {
  CHECK(refusal("epcoh=3").find("Write epoch, workers") != std::string::npos);
  CHECK(refusal("epoch").find("one of = !=") != std::string::npos);
  CHECK(refusal("epoch>=many") == "\"epoch>=many\": a number was expected");
  CHECK(refusal("worker three member").find("the worker's number") != std::string::npos);
  CHECK(refusal("worker 3 gone").find("MEMBER") != std::string::npos);
  CHECK(refusal("host h").find("\"host 10.0.0.3 lost\"") != std::string::npos);
  CHECK(refusal("server 0 dead").find("listening") != std::string::npos);
  CHECK(refusal("event").find("name") != std::string::npos);
  CHECK(refusal("event x>=y").find("number") != std::string::npos);
  CHECK(refusal("event x ~ (").find("regular expression") != std::string::npos);
  CHECK(refusal(".hosts[host").find("\"]\" is missing") != std::string::npos);
  CHECK(refusal(".hosts[host]=1").find("FIELD=VALUE") != std::string::npos);
  CHECK(refusal(".=1").find("field's name") != std::string::npos);
  CHECK(refusal("").find("not a condition") != std::string::npos);
}

TEST_CASE("condition: a path that no status has is refused before there is one", "[wait]") {
  const std::pair<const char*, const char*> wrong[] = {
      {".epcoh=3", "no epcoh; did you mean epoch?"},
      {".servers[id=0].sate=listening", "no servers[].sate; did you mean state?"},
      {".servers[state=up,ip=0].port>0", "no servers[].ip; dtctl status --json"},
      {".gpus[index=0].busy_percnt=93", "no gpus[].busy_percnt; did you mean busy_percent?"},
      {".rolling_back.to_epok=3", "no rolling_back.to_epok; did you mean to_epoch?"},
      {".workers[indx=0].id=1", "no workers[].indx; "},
      {".workers[id=0].stalls.proces~T", "no workers[].stalls.proces; did you mean process?"},
      {".epoch.length>0", "no epoch.length"},
      {".length>0", "no length"},
      {".kept_out.length.x=1", "no kept_out[].length.x"},
      {".volume[stalled_s=0].queue_age_s<1", "volume is no list"},
      {".workers[id=0].values.loss.mean<1", "no workers[].values.*.mean"},
      {".file.accepted[host=b].length=1", "no file.accepted[].host"},
      {".workers[id=0].gpus.lenght>0", "no workers[].gpus[].lenght"}};
  for (const auto& [text, why] : wrong) CHECK_THAT(refusal(text), Catch::Matchers::Contains(why));
}

TEST_CASE("condition: names that users choose, and fields that are null at times, are free",
          "[wait]") {
  for (const char* text :
       {".workers[id=0].values.val_loss<0.2", ".goodput.lost_s.death>9", ".leaving!=null",
        ".hosts[leaving!=null].length>0", ".workers.gpus.length>0", ".workers.id.length=2",
        ".hosts[host=10.0.0.8].leaving.in_s<60", ".workers[id=0].progress.step>100"})
    CHECK(Condition::parse(text).has_value());
}
