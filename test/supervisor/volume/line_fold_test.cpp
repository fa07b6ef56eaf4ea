#include "supervisor/volume/line_fold.h"

#include <rapidcheck.h>

#include <map>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using supervisor::LineFold;

namespace {

ProcessId nth(std::uint32_t id) { return {Role::kWorker, id}; }
Host nth_host(std::uint32_t id) { return Host{"", fmt::format("n{}", id), 0}; }
Time after(Duration d) { return Time(d); }

std::string text(const std::vector<LineFold::Line>& lines) {
  std::string out;
  for (const auto& line : lines) out += (line.is_stderr ? "E " : "O ") + line.text;
  return out;
}

}  // namespace

TEST_CASE("line fold: equal lines within half a second are one, others stay as they are",
          "[output]") {
  LineFold fold;
  CHECK_FALSE(fold.due_at());
  for (std::uint32_t id = 0; id < 999; ++id)
    fold.add(nth(id), nth_host(id), false, id == 17 ? "step 7 nan" : "step 7",
             after(1ms * id / 10));
  CHECK(fold.due_at() == after(500ms));
  CHECK(fold.due(after(499ms)).empty());
  fold.add(nth(999), nth_host(999), false, "step 7", after(499ms));
  CHECK(text(fold.due(after(500ms))) == "O [workers 0-16,18-999] step 7\n");
  CHECK(text(fold.due(after(502ms))) == "O [worker 17 n17] step 7 nan\n");
  CHECK_FALSE(fold.due_at());
}

TEST_CASE("line fold: roles, stdout and stderr are apart", "[output]") {
  LineFold fold;
  const Host a = nth_host(1);
  fold.add(nth(1), a, false, "x", after(0s));
  fold.add(nth(2), a, true, "x", after(0s));
  fold.add({Role::kServer, 1}, a, false, "x", after(0s));
  fold.add({Role::kServer, 2}, a, false, "x", after(0s));
  fold.add({Role::kPrepare, 1}, nth_host(1), true, "x", after(0s));
  fold.add({Role::kPrepare, 2}, nth_host(2), true, "x", after(0s));
  CHECK(text(fold.due(after(1s))) ==
        "O [worker 1 n1] x\nE [worker 2 n1] x\nO [servers 1-2] x\nE [prepare-data n[1-2]] x\n");
}

TEST_CASE("line fold: lines that are equal, but too late, are new ones", "[output]") {
  LineFold fold;
  fold.add(nth(1), nth_host(1), false, "x", after(0s));
  CHECK(text(fold.due(after(LineFold::kWait))) == "O [worker 1 n1] x\n");
  fold.add(nth(2), nth_host(2), false, "x", after(LineFold::kWait));
  CHECK(text(fold.due(after(1s))) == "O [worker 2 n2] x\n");
}

TEST_CASE("line fold: what a process repeats is shown as often", "[output]") {
  LineFold fold;
  for (int i = 0; i < 2; ++i)
    for (std::uint32_t id = 0; id < 3; ++id) fold.add(nth(id), nth_host(id), false, "x", after(0s));
  CHECK(text(fold.due(after(1s))) == "O [workers 0-2] x\nO [workers 0-2] x\n");
}

TEST_CASE("line fold: a line does not pass an earlier one of its process", "[output]") {
  LineFold fold;
  fold.add(nth(1), nth_host(1), false, "b", after(0s));
  fold.add(nth(2), nth_host(2), false, "a", after(0s));
  fold.add(nth(2), nth_host(2), false, "b", after(0s));  // may not join the first one
  fold.add(nth(1), nth_host(1), false, "a", after(0s));  // this one may join the second
  fold.add(nth(1), nth_host(1), false, "b", after(0s));
  CHECK(text(fold.due(after(1s))) == "O [worker 1 n1] b\nO [workers 1-2] a\nO [workers 1-2] b\n");
}

TEST_CASE("line fold: at a process's end its lines, and those before them, are shown at once",
          "[output]") {
  LineFold fold;
  fold.add(nth(1), nth_host(1), false, "a", after(0s));
  fold.add(nth(2), nth_host(2), false, "bye", after(0s));
  fold.add(nth(3), nth_host(3), false, "c", after(0s));
  CHECK(text(fold.up_to_last_of(nth(2))) == "O [worker 1 n1] a\nO [worker 2 n2] bye\n");
  CHECK(fold.up_to_last_of(nth(2)).empty());
  CHECK(text(fold.due(after(1s))) == "O [worker 3 n3] c\n");
}

TEST_CASE("line fold: memory is bounded: beyond the limit the oldest lines are due", "[output]") {
  LineFold fold(1000);
  for (std::uint32_t id = 0; id < 100; ++id)
    fold.add(nth(id), nth_host(id), false, fmt::format("line {}", id), after(0s));
  const auto lines = fold.due(after(0s));
  CHECK(lines.size() > 80);
  CHECK(lines.size() < 100);
  CHECK(lines.front().text == "[worker 0 n0] line 0\n");
  CHECK(lines.size() + fold.due(after(1s)).size() == 100);
}

TEST_CASE("line fold: many ids without order become their number", "[output]") {
  LineFold fold;
  for (std::uint32_t id = 0; id < 100; id += 2) {
    fold.add(nth(id), nth_host(id), false, "x", after(0s));
    fold.add({Role::kPrepare, id}, nth_host(id), false, "y", after(0s));
  }
  CHECK(text(fold.due(after(1s))) == "O [50 workers] x\nO [50 hosts' prepare-data] y\n");
}

TEST_CASE("line fold: every line is shown in time, each process's in order", "[output][property]") {
  CHECK(rc::check([] {
    using Said = std::pair<std::uint32_t, int>;  // a worker says one of a few texts
    const auto said = *rc::gen::container<std::vector<Said>>(
        rc::gen::pair(rc::gen::inRange<std::uint32_t>(0, 4), rc::gen::inRange(0, 3)));
    LineFold fold;
    std::map<std::uint32_t, std::string> wanted;
    std::map<std::uint32_t, std::string> shown;
    const auto take = [&](const std::vector<LineFold::Line>& lines) {
      for (const auto& line : lines) {
        const char last = line.text[line.text.size() - 2];
        const std::string who = line.text.substr(1, line.text.find(']') - 1);
        for (std::uint32_t id = 0; id < 4; ++id) {
          const auto digit = static_cast<char>('0' + id);
          bool is_there = who.starts_with("worker ") && who[7] == digit;
          if (who.starts_with("workers "))
            for (std::size_t i = 8; i < who.size(); ++i) {
              is_there = is_there || who[i] == digit;
              const bool is_range = who[i] == '-' && who[i - 1] < digit && digit < who[i + 1];
              is_there = is_there || is_range;
            }
          if (is_there) shown[id] += last;
        }
      }
    };
    Time now = after(0s);
    for (const auto& [id, what] : said) {
      const auto letter = static_cast<char>('a' + what);
      fold.add(nth(id), Host{"", "h", 0}, false, std::string(1, letter), now);
      wanted[id] += letter;
      now += 70ms;
      take(fold.due(now));
    }
    take(fold.due(now + LineFold::kWait));
    RC_ASSERT(shown == wanted);
  }));
}
