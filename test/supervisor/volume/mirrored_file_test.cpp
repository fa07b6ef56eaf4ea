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

namespace {

/// The file among the job's files, and its name in the job folder.
struct Log : TempDir {
  Log() { fs::create_directories(*this / ".dtlaunch/j"); }
  const std::string file = *this / ".dtlaunch/j/host_worker_log";
  const std::string seen = *this / "host_worker_log";
  const std::string foreign = file + ".foreign";
};

}  // namespace

TEST_CASE("host_worker_log: lines that are missing are appended, also to a long file") {
  Log at;
  VolumeLoop loop;
  const auto known = GENERATE(std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{40'000});
  spill(at.file, text(lines(0, known)));
  const std::string want = text(lines(0, known + 2));  // made once: it takes longer than a turn
  ChangeLogFile log(loop.volume, at.file, at.seen);
  log.on_foreign = [](const std::string&) { FAIL("that is no text of others"); };
  log.add(lines(0, known + 2));
  loop.group.spawn(log.run());
  REQUIRE(loop.until([&] { return slurp(at.seen) == want; }));
  log.add(lines(known + 2, known + 3));
  CHECK(loop.wait(log.finish(10s)));
  CHECK(slurp(at.file) == text(lines(0, known + 3)));
  CHECK(fs::read_symlink(at.seen) == ".dtlaunch/j/host_worker_log");
}

TEST_CASE("host_worker_log: whatever part of it was written, the rest follows") {
  Log at;
  VolumeLoop loop;
  const std::string whole = text(lines(0, 2));
  for (std::size_t part = 0; part <= whole.size(); part += 7) {
    spill(at.file, whole.substr(0, part));
    ChangeLogFile log(loop.volume, at.file, at.seen);
    log.add(lines(0, 2));
    CHECK(loop.wait(log.catch_up()));
    CHECK(slurp(at.file) == whole);
  }
  CHECK_FALSE(fs::exists(at.foreign));
}

TEST_CASE("host_worker_log: what others make of it is set aside and told, and it is whole again") {
  Log at;
  VolumeLoop loop;
  std::vector<std::string> told;
  ChangeLogFile log(loop.volume, at.file, at.seen);
  log.on_foreign = [&](const std::string& moved) { told.push_back(moved); };
  REQUIRE(loop.wait(log.catch_up()));
  CHECK(slurp(at.seen).empty());
  CHECK(fs::is_symlink(at.seen));
  log.add(lines(0, 2));
  loop.group.spawn(log.run());
  const std::string two = text(lines(0, 2));
  const auto is_whole = [&] {
    return loop.until([&] { return log.is_written(); }) && slurp(at.seen) == two &&
           slurp(at.file) == two;
  };
  REQUIRE(is_whole());
  const auto mended = [&] {
    log.look();
    return is_whole();
  };
  SECTION("appended to") {
    spill(at.seen, two + "mine\n");
    CHECK(mended());
    CHECK(slurp(at.foreign) == two + "mine\n");
    CHECK(fs::is_symlink(at.seen));
  }
  SECTION("its first line removed") {
    spill(at.seen, text(lines(1, 2)));
    CHECK(mended());
    CHECK(slurp(at.foreign) == text(lines(1, 2)));
  }
  SECTION("replaced by an editor") {
    fs::remove(at.seen);
    spill(at.seen, "mine\n");
    CHECK(mended());
    CHECK(slurp(at.foreign) == "mine\n");
    CHECK(fs::is_symlink(at.seen));
  }
  SECTION("a link to another file") {
    spill(at / "precious", "precious");
    fs::remove(at.seen);
    fs::create_symlink(at / "precious", at.seen);
    CHECK(mended());
    CHECK(fs::is_symlink(at.foreign));
    CHECK(slurp(at / "precious") == "precious");
  }
  SECTION("removed, emptied, or a copy of it") {
    fs::remove(at.seen);
    CHECK(mended());
    fs::remove(at.file);
    CHECK(mended());
    spill(at.seen, "");
    CHECK(mended());
    fs::remove(at.seen);
    spill(at.seen, text(lines(0, 1)));
    CHECK(mended());
    CHECK_FALSE(fs::is_symlink(at.seen));
    CHECK_FALSE(fs::exists(at.foreign));
  }
  CHECK(loop.wait(log.finish(10s)));
  CHECK(told ==
        std::vector<std::string>(fs::exists(fs::symlink_status(at.foreign)) ? 1 : 0, at.foreign));
  CHECK(log.foreign() == (told.empty() ? "" : at.foreign));
}

TEST_CASE("host_worker_log: trouble is told once, and what is missing is written afterwards") {
  Log at;
  VolumeLoop loop;
  fs::remove(at / ".dtlaunch/j");
  ChangeLogFile log(loop.volume, at.file, at.seen);
  int told = 0;
  log.on_error = [&](const Error& error) {
    ++told;
    CHECK(error.message.find(at.file) != std::string::npos);
  };
  log.add(lines(0, 1));
  loop.group.spawn(log.run());
  REQUIRE(loop.until([&] { return told == 1; }));
  log.add(lines(1, 2));  // looks again at once
  CHECK_FALSE(loop.until([&] { return told > 1; }, 100ms));
  fs::create_directory(at / ".dtlaunch/j");
  REQUIRE(loop.until([&] { return slurp(at.seen) == text(lines(0, 2)); }));
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
