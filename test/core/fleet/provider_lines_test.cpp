#include "core/fleet/provider_lines.h"

#include "test/support/catch.h"

namespace dt {
namespace {

using namespace provider_lines;

TEST_CASE("provider lines: requests are one line each, whatever is in their texts", "[fleet]") {
  CHECK(hello(1, "j") == "{\"do\":\"hello\",\"job\":\"j\",\"n\":1,\"version\":1}\n");
  CHECK(list(2) == "{\"do\":\"list\",\"n\":2}\n");
  Machine machine{.id = "i-1\n\"x\""};
  machine.is_asked = true;
  CHECK(mark(3, machine, Mark::kRemovalQueued) ==
        "{\"asked\":true,\"do\":\"mark\",\"id\":\"i-1\\n\\\"x\\\"\",\"mark\":\"REMOVAL_QUEUED\","
        "\"n\":3}\n");
  CHECK(let_go(4, "a", "\xff").find('\n') == let_go(4, "a", "\xff").size() - 1);
  CHECK(confirm(5, "a") == "{\"do\":\"confirm\",\"id\":\"a\",\"n\":5}\n");
  CHECK(grow(6, 2, 5) == "{\"do\":\"grow\",\"from\":2,\"n\":6,\"to\":5}\n");
}

TEST_CASE("provider lines: every mark has a text, and is read back from it", "[fleet]") {
  for (const Mark mark : {Mark::kNone, Mark::kBase, Mark::kAddQueued, Mark::kAdded,
                          Mark::kRemovalQueued, Mark::kRemoved})
    CHECK(mark_of(mark_text(mark)) == mark);
  CHECK_FALSE(mark_of("added"));
}

TEST_CASE("provider lines: an answer, a refusal and an event", "[fleet]") {
  CHECK(parse_line(R"({"n":7,"ok":true,"later field":[[]]})")->n == 7);
  const auto refused = parse_line(R"({"n":7,"ok":false,"kind":"denied","error":"no right"})");
  REQUIRE(refused);
  REQUIRE(refused->refusal);
  CHECK(refused->refusal->kind == Trouble::kDenied);
  CHECK(refused->refusal->text == "no right");
  CHECK(parse_line(R"({"event":"changed"})")->is_changed);
}

TEST_CASE("provider lines: long ids and sentences stay whole", "[fleet]") {
  const std::string text(300, 'x');
  const auto listing =
      parse_listing(R"({"machines":[{"id":")" + text + R"(1","state":"pending"},)" + R"({"id":")" +
                    text + R"(2","state":"pending"}]})");
  REQUIRE(listing);
  CHECK(listing->machines[0].id == text + "1");
  CHECK(sentence_of(R"({"later":")" + text + R"("})") == text);
}

TEST_CASE("provider lines: a line that is none says what is wrong", "[fleet]") {
  const std::pair<std::string, const char*> wrong[] = {
      {"", "no JSON"},
      {"{\"n\":1", "no JSON"},
      {std::string("{\"n\":1,\"ok\":true}\0", 19), "no JSON"},
      {"[1]", "no JSON object"},
      {"7", "no JSON object"},
      {"{}", "\"n\" is missing"},
      {R"({"n":-1,"ok":true})", "\"n\" is no whole number"},
      {R"({"n":1.5,"ok":true})", "\"n\" is no whole number"},
      {R"({"n":1})", "\"error\" is no text"},
      {R"({"n":1,"ok":"yes"})", "\"ok\" is neither true nor false"},
      {R"({"n":1,"ok":false,"error":"x"})", "\"kind\" is no text"},
      {R"({"n":1,"ok":false,"error":"x","kind":"sad"})", "\"kind\" is away, busy, denied, wrong"},
      {std::string(100000, '[') + std::string(100000, ']'), "four levels"},
  };
  for (const auto& [text, why] : wrong) {
    INFO(text.substr(0, 80));
    const auto line = parse_line(text);
    REQUIRE_FALSE(line);
    CHECK(line.error().message.find(why) != std::string::npos);
  }
}

TEST_CASE("provider lines: hello says what a provider can, of this version alone", "[fleet]") {
  const auto hello = parse_hello(
      R"({"n":1,"ok":true,"version":1,"name":"aws","marks":true,"can":["confirm","fly"],"every_s":5})");
  REQUIRE(hello);
  CHECK(hello->name == "aws");
  CHECK(hello->has_marks);
  CHECK(hello->can_confirm);
  CHECK_FALSE(hello->can_let_go);
  CHECK(hello->every == std::chrono::seconds(5));
  CHECK(parse_hello(R"({"n":1,"ok":true,"version":2,"name":"x"})").error().message ==
        "it has version 2 of the provider's protocol, dtfleet version 1");
  CHECK_FALSE(parse_hello(R"({"n":1,"ok":true,"name":"x"})"));
  CHECK_FALSE(parse_hello(R"({"n":1,"ok":true,"version":1})"));
  CHECK_FALSE(parse_hello(R"({"n":1,"ok":true,"version":1,"name":"x","every_s":0.1})"));
  CHECK_FALSE(parse_hello(R"({"n":1,"ok":true,"version":1,"name":"x","every_s":1e999})"));
}

TEST_CASE("provider lines: a list is read in the machines' order", "[fleet]") {
  const auto listing = parse_listing(
      R"({"n":1,"ok":true,"wished":4,"said":"a quota","machines":[
        {"id":"i-2","host":"n2","state":"ending","slots":8,"mark":"ADDED","wanted":false,
         "deadline":1764000000.5,"since":1763990000,"held_back":true,"order":9,"later":{}},
        {"id":"i-1","state":"pending","why":"Insufficient\u001b[31m"},
        {"id":"i-3","host":"10.0.0.3","state":"ready","asked":false,"deadline":null}]})");
  REQUIRE(listing);
  CHECK(listing->wished == 4);
  CHECK(listing->said == "a quota");
  REQUIRE(listing->machines.size() == 3);
  CHECK(listing->machines[0].id == "i-1");
  CHECK(listing->machines[0].why.find('\x1b') == std::string::npos);
  CHECK(listing->machines[1] ==
        Machine{.id = "i-3", .state = MachineState::kReady, .host = "10.0.0.3"});
  const Machine& last = listing->machines[2];
  CHECK(last.slots == 8);
  CHECK(last.mark == Mark::kAdded);
  CHECK(last.is_asked);
  CHECK(last.deadline == 1764000000.5);
  CHECK(last.since == 1763990000);
  CHECK(last.is_held_back);
}

TEST_CASE("provider lines: a list that is wrong in one machine is wrong", "[fleet]") {
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"id":"a","host":"n1","state":"ready"})", "a is there twice"},
      {R"({"host":"n1","state":"ready"})", "\"id\" is no text"},
      {R"({"id":"","host":"n1","state":"ready"})", "\"id\" is empty"},
      {R"({"id":"b","state":"ready"})", "b: \"host\" is missing"},
      {R"({"id":"b","host":"n 1","state":"ready"})", "b: \"n 1\" is no host"},
      {R"({"id":"b","host":"n1","state":"gone"})", "not \"gone\""},
      {R"({"id":"b","host":"n1","state":"ready","slots":0})", "b: \"slots\" is 0"},
      {R"({"id":"b","host":"n1","state":"ready","slots":99999})", "\"slots\" is no whole number"},
      {R"({"id":"b","host":"n1","state":"ready","mark":"x"})", "b: \"x\" is no mark"},
      {R"({"id":"b","host":"n1","state":"ready","deadline":-1})", "\"deadline\" is no number"},
      {R"({"id":"b","host":"n1","state":"ready","since":"now"})", "\"since\" is no number"},
      {R"({"id":"b","host":"n1","state":"ready","asked":1})", "\"asked\" is neither true"},
      {"7", "an entry of \"machines\" is no object"},
  };
  for (const auto& [machine, why] : wrong) {
    INFO(machine);
    const auto listing = parse_listing(fmt::format(
        R"({{"n":1,"ok":true,"machines":[{{"id":"a","host":"n0","state":"ready"}},{}]}})",
        machine));
    REQUIRE_FALSE(listing);
    CHECK(listing.error().message.find(why) != std::string::npos);
  }
  CHECK(parse_listing(R"({"n":1,"ok":true})").error().message == "\"machines\" is no list");
  std::string many = R"({"n":1,"ok":true,"machines":[0)";
  for (int i = 0; i < 100'000; ++i) many += ",0";
  CHECK(parse_listing(many + "]}").error().message.find("more than 100000") != std::string::npos);
}

TEST_CASE("provider lines: a sentence that belongs to an answer", "[fleet]") {
  CHECK(sentence_of(R"({"n":1,"ok":true,"later":"when it is the highest"})") ==
        "when it is the highest");
  CHECK(sentence_of(R"({"n":1,"ok":true,"said":"two asked for"})") == "two asked for");
  CHECK(sentence_of(R"({"n":1,"ok":true})").empty());
  CHECK(sentence_of("x").empty());
}

}  // namespace
}  // namespace dt
