#include "supervisor/volume/mirrored_file.h"

#include <signal.h>

#include "core/files/change_log.h"
#include "supervisor/volume/change_log_file.h"
#include "supervisor/volume/journal_copy.h"
#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using supervisor::ChangeLogFile;
using supervisor::JournalCopy;

namespace {

std::vector<LogLine> lines(std::uint64_t from, std::uint64_t to) {
  std::vector<LogLine> out;
  for (std::uint64_t n = from; n < to; ++n)
    out.push_back({n, n % 2 == 0, Host{"", "10.0.1.9", 0}, 1'763'664'000'123'456'789});
  return out;
}

std::string text(const std::vector<LogLine>& all) {
  std::string out;
  for (const LogLine& line : all) out += format_change(line);
  return out;
}

}  // namespace

TEST_CASE("host_worker_log: lines that are missing are appended, also to a long file") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "host_worker_log";
  const auto known = GENERATE(std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{40'000});
  spill(path, text(lines(0, known)));
  const std::string want = text(lines(0, known + 2));  // made once: it takes longer than a turn
  ChangeLogFile log(loop.volume, path);
  log.add(lines(0, known + 2));
  loop.group.spawn(log.run());
  REQUIRE(loop.until([&] { return slurp(path) == want; }));
  log.add(lines(known + 2, known + 3));
  CHECK(loop.wait(log.finish(10s)));
  CHECK(slurp(path) == text(lines(0, known + 3)));
}

TEST_CASE("host_worker_log: trouble is told once, and what is missing is written afterwards") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "gone/host_worker_log";
  ChangeLogFile log(loop.volume, path);
  int told = 0;
  log.on_error = [&](const Error& error) {
    ++told;
    CHECK(error.message.find(path) != std::string::npos);
  };
  log.add(lines(0, 1));
  loop.group.spawn(log.run());
  REQUIRE(loop.until([&] { return told == 1; }));
  log.add(lines(1, 2));  // looks again at once
  CHECK_FALSE(loop.until([&] { return told > 1; }, 100ms));
  fs::create_directory(dir / "gone");
  REQUIRE(loop.until([&] { return slurp(path) == text(lines(0, 2)); }));
  CHECK(loop.wait(log.finish(10s)));
}

TEST_CASE("journal's copy: it follows the journal, and what was there or is changed is replaced") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "journal";
  spill(path, "one, of which an earlier supervisor could not write all");
  JournalCopy copy(loop.volume, path, "one two ");
  loop.group.spawn(copy.run());
  REQUIRE(loop.until([&] { return slurp(path) == "one two "; }));
  CHECK((fs::status(path).permissions() & fs::perms::mask) == fs::perms(0600));
  copy.add("three ");
  REQUIRE(loop.until([&] { return slurp(path) == "one two three "; }));
  std::string whole = "one two three ";
  for (const char* wrong : {"", "one two three ..."}) {
    spill(path, wrong);
    copy.add("more ");
    whole += "more ";
    REQUIRE(loop.until([&] { return slurp(path) == whole; }));
  }
  CHECK(loop.wait(copy.finish(10s)));
}

TEST_CASE("the journal's copy: a journal that is replaced is written whole, also during a stall") {
  TempDir dir;
  VolumeLoop loop;
  const std::string path = dir / "journal";
  JournalCopy copy(loop.volume, path, "begin ");
  loop.group.spawn(copy.run());
  REQUIRE(loop.until([&] { return slurp(path) == "begin "; }));
  const bool stalls = GENERATE(false, true);
  if (stalls) REQUIRE(::kill(loop.volume.helper_pid(), SIGSTOP) == 0);
  copy.add("more ");
  if (stalls) REQUIRE(loop.until([&] { return loop.volume.stalled_for() > 0ms; }));
  copy.replace("cut ");
  CHECK(copy.bytes() == "cut ");
  CHECK_FALSE(copy.is_written());
  copy.add("and more");
  if (stalls) REQUIRE(::kill(loop.volume.helper_pid(), SIGCONT) == 0);
  REQUIRE(loop.until([&] { return slurp(path) == "cut and more"; }));
  copy.add(", and more");
  CHECK(loop.wait(copy.finish(10s)));
  CHECK(slurp(path) == "cut and more, and more");
}
