#include "supervisor/volume/events_file.h"

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using supervisor::EventsFile;
using supervisor::kAnySize;
using supervisor::told_events;

TEST_CASE("events.jsonl: what is there is counted, half a line is not") {
  const std::string one = "{\"event\":\"worker_added\",\"n\":0,\"seq\":0}\n";
  const std::string two = "{\"event\":\"note\",\"n\":1,\"text\":\"\\\"seq\\\":7\"}\n";
  const std::string odd = "\"seq\":8, somebody's own\n";
  const auto told = told_events(one + two + odd + "{\"event\":\"worker_removed\",\"seq\":1}");
  CHECK(told.bytes == (one + two + odd).size());
  CHECK(told.next == 3);
  CHECK(told.log_lines == std::set<std::uint64_t>{0});
  CHECK(told_events("").next == 0);
}

TEST_CASE("events.jsonl: what a volume did not take is written afterwards, once") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "gone/events.jsonl";
  EventsFile events(loop.volume, path, 0);
  int troubles = 0;
  events.on_error = [&](const Error&) { ++troubles; };
  events.add("one\n");
  loop.group.spawn(events.run());
  REQUIRE(loop.until([&] { return troubles == 1; }));
  fs::create_directory(dir / "gone");
  spill(path, "on");  // a part was written before
  events.add("two\n");
  REQUIRE(loop.until([&] { return slurp(path) == "one\ntwo\n"; }));
  events.add("three\n");
  CHECK(loop.wait(events.finish(10s)));
  CHECK(slurp(path) == "one\ntwo\nthree\n");
}

TEST_CASE("events.jsonl: a file that somebody has changed is gone on with") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "events.jsonl";
  const std::string before = GENERATE("", "mine\n", "one\nand mine\n");
  EventsFile events(loop.volume, path, 4);
  spill(path, before);
  loop.group.spawn(events.run());
  events.add("two\n");
  REQUIRE(loop.until([&] { return slurp(path) == before + "two\n"; }));
  events.add("three\n");
  CHECK(loop.wait(events.finish(10s)));
  CHECK(slurp(path) == before + "two\nthree\n");
}
