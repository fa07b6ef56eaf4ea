#include "core/files/file_watch.h"

#include <sstream>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

constexpr const char* kStart = "10.0.0.1\n10.0.0.2\n";

Observation content(std::string text) { return {Observation::Kind::kContent, std::move(text)}; }
Observation absent() { return {Observation::Kind::kAbsent, ""}; }
Observation unreadable(std::string why) { return {Observation::Kind::kUnreadable, std::move(why)}; }

/// What the file is from a moment on.
struct Step {
  int at_ms;
  Observation file;
};

std::string show(const FileWatchResult& result) {
  if (const auto* a = std::get_if<FileAccepted>(&result)) {
    std::string out = "accepted";
    for (const auto& line : a->lines) out += " " + to_string(line.host);
    return out;
  }
  if (const auto* r = std::get_if<FileRefused>(&result)) return "refused " + r->why;
  if (std::get_if<FileCleared>(&result)) return "cleared";
  return "";
}

/// Looks at the file whenever the machine asks for it (and at each change when `hints`), until the
/// end; returns "ms: decision" lines, refusals without their standing last half.
std::string watch(const std::vector<Step>& steps, bool hints = false, int until_ms = 12000,
                  int first_look_ms = 0) {
  FileWatch machine(kStart, {});
  std::ostringstream out;
  const Time zero{};
  std::size_t next = 0;
  Observation file = content(kStart);
  for (Time now = zero + std::chrono::milliseconds(first_look_ms); now <= zero + until_ms * 1ms;) {
    while (next < steps.size() && zero + steps[next].at_ms * 1ms <= now) file = steps[next++].file;
    std::string said = show(machine.observe(file, now));
    said = said.substr(0, said.find("; the edit"));
    if (!said.empty()) out << (now - zero) / 1ms << ": " << said << "\n";
    Time look = machine.next_look(now);
    REQUIRE(look > now);
    REQUIRE(look <= now + 1s);
    if (hints && next < steps.size()) look = std::min(look, zero + steps[next].at_ms * 1ms);
    now = look;
  }
  return out.str();
}

}  // namespace

TEST_CASE("file watch: an unchanged file says nothing for ever", "[file_watch]") {
  CHECK(watch({}) == "");
}

TEST_CASE("file watch: a whole new content counts 200 ms after it was first seen", "[file_watch]") {
  CHECK(watch({{500, content("10.0.0.1\n10.0.0.2\n10.0.1.9\n")}}) ==
        "1200: accepted 10.0.0.1 10.0.0.2 10.0.1.9\n");
  CHECK(watch({{500, content("10.0.0.1\n10.0.0.2\n10.0.1.9\n")}}, true) ==
        "700: accepted 10.0.0.1 10.0.0.2 10.0.1.9\n");
}

TEST_CASE("file watch: each way editors save ends in one decision", "[file_watch]") {
  const std::string more = "10.0.0.1\n10.0.0.2\n10.0.1.9\n";
  const std::string accepted = "accepted 10.0.0.1 10.0.0.2 10.0.1.9\n";
  for (const bool hints : {false, true}) {
    for (int phase = 0; phase < 1000; phase += 130) {
      CAPTURE(hints, phase);
      auto last_line = [&](std::vector<Step> steps) {
        const std::string all = watch(steps, hints, 12000, phase);
        REQUIRE(std::count(all.begin(), all.end(), '\n') == 1);
        return all.substr(all.find(": ") + 2);
      };
      // vim backupcopy=yes: truncated in place, then written.
      CHECK(last_line({{500, content("")}, {510, content(more)}}) == accepted);
      // vim backupcopy=no: renamed, then written as a new file.
      CHECK(last_line({{500, absent()}, {520, content("")}, {530, content(more)}}) == accepted);
      // sed -i, mv: replaced at once.
      CHECK(last_line({{500, content(more)}}) == accepted);
      // cp: truncated and written piece by piece.
      CHECK(last_line({{500, content("")},
                       {510, content(more.substr(0, 12))},
                       {520, content(more.substr(0, 24))},
                       {530, content(more)}}) == accepted);
      // "> file" and the content a second later.
      CHECK(last_line({{500, content("")}, {1500, content(more)}}) == accepted);
      // The last line typed half, finished two seconds later.
      CHECK(last_line({{500, content("10.0.0.1\n10.0.0.2\n10.0.1")}, {2500, content(more)}}) ==
            accepted);
    }
  }
}

TEST_CASE("file watch: a last line without newline counts after 3 s", "[file_watch]") {
  CHECK(watch({{500, content("10.0.0.1\n10.0.0.2\n10.0.1")}}) ==
        "4000: accepted 10.0.0.1 10.0.0.2 10.0.1\n");
}

TEST_CASE("file watch: what is unusable is refused once, whole, and the good list stays",
          "[file_watch]") {
  CHECK(watch({{500, content("")}}) == "4000: refused host_worker names no host\n");
  CHECK(watch({{500, absent()}}) == "4000: refused host_worker is gone\n");
  CHECK(watch({{500, unreadable("Permission denied")}}) ==
        "4000: refused host_worker cannot be read (Permission denied)\n");
  CHECK(watch({{500, content("\n# nobody\n  \n")}}) == "1200: refused host_worker names no host\n");
  CHECK(watch({{500, content("10.0.0.1\n")},
               {1100, content("10.0.0.1\n\x01\x02 garbage here\n10.0.0.2\n")}})
            .find("1400: refused host_worker:2:") == 0);
}

TEST_CASE("file watch: harmless forms are read as meant", "[file_watch]") {
  const std::string accepted = "1200: accepted 10.0.0.1 10.0.0.2 10.0.1.9\n";
  CHECK(watch({{500, content("10.0.0.1\r\n10.0.0.2\r\n10.0.1.9\r\n")}}) == accepted);
  CHECK(watch({{500, content("\n10.0.0.1\n\n10.0.0.2\n\n10.0.1.9\n\n")}}) == accepted);
  CHECK(watch({{500, content("# all\n10.0.0.1 # one\n10.0.0.2\n10.0.1.9\n")}}) == accepted);
  CHECK(watch({{500, content("10.0.0.1  \n10.0.0.2\t\n  10.0.1.9 \n")}}) == accepted);
}

TEST_CASE("file watch: changed and changed back is nothing", "[file_watch]") {
  CHECK(watch({{500, content("10.0.0.1\n")}, {1100, content(kStart)}}) == "");
  CHECK(watch({{500, absent()}, {3000, content(kStart)}}) == "");
  CHECK(watch({{500, content("")}, {900, content(kStart)}}, true) == "");
}

TEST_CASE("file watch: accepted, then changed back, are two edits", "[file_watch]") {
  CHECK(watch({{500, content("10.0.0.1\n10.0.0.2\nx\n")}, {3500, content(kStart)}}) ==
        "1200: accepted 10.0.0.1 10.0.0.2 x\n4400: accepted 10.0.0.1 10.0.0.2\n");
}

TEST_CASE("file watch: after a refusal the old content clears it, and says so", "[file_watch]") {
  CHECK(watch({{500, content("")}, {5500, content(kStart)}}) ==
        "4000: refused host_worker names no host\n6200: cleared\n");
}

TEST_CASE("file watch: one refusal that flickers is said once, another one again", "[file_watch]") {
  CHECK(watch({{500, absent()}, {4500, content("half")}, {5200, absent()}}, true) ==
        "3500: refused host_worker is gone\n");
  CHECK(watch({{500, absent()}, {4500, content("\n")}}) ==
        "4000: refused host_worker is gone\n5200: refused host_worker names no host\n");
}

TEST_CASE("file watch: a file that never stands still is never accepted", "[file_watch]") {
  FileWatch machine(kStart, {});
  for (int i = 0; i < 100; ++i)
    CHECK(show(machine.observe(content(fmt::format("h{}\n", i)), Time(i * 190ms))) == "");
  CHECK(machine.settling());
  CHECK(machine.accepted_text() == kStart);
}

TEST_CASE("file watch: status can tell why the present content is not in force", "[file_watch]") {
  FileWatch machine(kStart, {});
  (void)machine.observe(absent(), Time(0s));
  CHECK_FALSE(machine.refusal());
  (void)machine.observe(absent(), Time(3s));
  REQUIRE(machine.refusal());
  CHECK(machine.refusal()->find("the last good list stays") != std::string::npos);
}
