#include "core/files/change_log.h"

#include "test/support/catch.h"

using namespace dt;

namespace {

std::vector<LogLine> three() {
  return {{0, true, {"", "10.0.1.9", 0}, 1763664000123456789},
          {1, false, {"", "10.0.1.9", 0}, 1763664001123456789},
          {2, true, {"", "fe80::1", 0}, 1763664002123456789}};
}

std::string text(const std::vector<LogLine>& lines) {
  std::string out;
  for (const auto& line : lines) out += format_change(line);
  return out;
}

}  // namespace

TEST_CASE("change log: the line is exactly what old scripts parse", "[change_log]") {
  CHECK(format_change(three()[0]) == "0 ADDED 10.0.1.9 1763664000123456789\n");
  CHECK(format_change({7, true, {"me", "h", 2222}, 5}) == "7 ADDED h 5\n");
  CHECK(format_change(three()[1]) == "1 REMOVED 10.0.1.9 1763664001123456789\n");
}

TEST_CASE("change log: whatever part of it was written, the rest follows without gap or double",
          "[change_log][property]") {
  const std::string whole = text(three());
  for (std::size_t cut = 0; cut <= whole.size(); ++cut) {
    CAPTURE(cut);
    const auto work = change_log_work(whole.substr(0, cut), three());
    REQUIRE(work);
    REQUIRE(work->keep <= cut);
    REQUIRE(whole.substr(0, work->keep) + work->bytes == whole);
    // Whole lines are never written again.
    REQUIRE((work->keep == 0 || whole[work->keep - 1] == '\n'));
    REQUIRE(cut - work->keep < 40);
  }
}

TEST_CASE("change log: what the journal does not say is left alone, and the line is named",
          "[change_log]") {
  const auto lines = three();
  auto why = [&](std::string existing) {
    const auto work = change_log_work(existing, lines);
    return work ? std::string("accepted") : work.error().message;
  };
  CHECK(why("hello\n").find("host_worker_log:1:") == 0);
  CHECK(why(format_change(lines[0]) + "1 ADDED other 5\n").find("host_worker_log:2:") == 0);
  CHECK(why(text(lines) + "3 ADDED x 1\n").find("host_worker_log:4:") == 0);
  CHECK(why(text(lines) + "\n").find("host_worker_log:4:") == 0);
  CHECK(why(format_change(lines[0]) + "1 REMOVED 10.0.2").find("host_worker_log:2:") == 0);
}
