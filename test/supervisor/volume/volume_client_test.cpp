#include "supervisor/volume/volume_client.h"

#include <signal.h>
#include <sys/stat.h>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

TEST_CASE("volume: files are read, made, replaced, appended to, cut, moved and listed",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;

  CHECK_FALSE(loop.wait(v.read(dir / "a"))->has_value());
  CHECK(*loop.wait(v.write_new(dir / "a", "one\n", 0600)));
  CHECK_FALSE(*loop.wait(v.write_new(dir / "a", "two\n")));
  CHECK(loop.wait(v.read(dir / "a"))->value() == "one\n");
  CHECK(loop.wait(v.append(dir / "a", "two\n")));
  CHECK(slurp(dir / "a") == "one\ntwo\n");
  CHECK(loop.wait(v.truncate(dir / "a", 4)));
  CHECK(slurp(dir / "a") == "one\n");
  CHECK(loop.wait(v.replace(dir / "a", "new\n")));
  CHECK(slurp(dir / "a") == "new\n");
  CHECK(loop.wait(v.make_dirs(dir / "x/y/z")));
  CHECK(loop.wait(v.make_dirs(dir / "x/y/z")));
  CHECK(loop.wait(v.rename(dir / "a", dir / "x/y/b")));
  CHECK(*loop.wait(v.exists(dir / "x/y/b")));
  CHECK_FALSE(*loop.wait(v.exists(dir / "a")));
  CHECK(*loop.wait(v.list(dir / "x/y")) == std::vector<std::string>{"b", "z"});
  CHECK(loop.wait(v.remove(dir / "x/y/b")));
  CHECK(loop.wait(v.remove(dir / "x/y/b")));
  CHECK(*loop.wait(v.list(dir / "x/y")) == std::vector<std::string>{"z"});
}

TEST_CASE("volume: a link takes the place of what was there, a file or another link", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  fs::create_directory(dir / "j");
  spill(dir / "j/events", "one\n");
  spill(dir / "events", "old\n");
  for (int i = 0; i < 2; ++i) {
    CHECK(*loop.wait(loop.volume.link(dir / "events", "j/events")));
    CHECK(slurp(dir / "events") == "one\n");
    CHECK(fs::read_symlink(dir / "events") == "j/events");
  }
  CHECK_FALSE(loop.wait(loop.volume.link(dir / "nowhere/events", "j/events")));
}

TEST_CASE("volume: a new file is there whole or not at all, wherever the helper is killed",
          "[volume]") {
  TempDir dir;
  Loop loop;
  supervisor::VolumeClient::Options options;
  // The first byte of a file that it writes kills it (SIGXFSZ).
  options.helper = {"/bin/sh", "-c", R"(ulimit -f 0; exec "$0" --volume-helper)",
                    DT_SUPERVISOR_PROGRAM};
  supervisor::VolumeClient volume(loop.context.get_executor(), options);
  loop.group.spawn(volume.run());
  CHECK_FALSE(loop.wait(volume.write_new(dir / "lock", "me\n")));
  CHECK_FALSE(fs::exists(dir / "lock"));
  volume.stop();
  CHECK(loop.finished());
}

TEST_CASE("volume: a file with a limit keeps its newer half", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  const std::string line(100, 'x');
  for (int i = 0; i < 100; ++i)
    loop.volume.queue_append(dir / "log", fmt::format("{} {}\n", i, line), 2000);
  REQUIRE(loop.wait(loop.volume.append(dir / "log", "end\n")));
  const std::string older = slurp(dir / "log.1");
  const std::string newer = slurp(dir / "log");
  CHECK(older.size() + newer.size() <= 2500);
  CHECK(older.size() >= 1000);
  CHECK(newer.ends_with("end\n"));
  CHECK(std::count(older.begin(), older.end(), '\n') == 10);
}

TEST_CASE("volume: how much room there is", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  CHECK(loop.wait(loop.volume.room(dir.path())).value_or(0) > 0);
  CHECK_FALSE(loop.wait(loop.volume.room(dir / "no such folder")));
}

namespace {

enum class Planted { kLink, kDanglingLink, kFifo, kFolder };

void plant(Planted what, const std::string& at, const TempDir& dir) {
  fs::remove(at);
  if (what == Planted::kLink) fs::create_symlink(dir / "precious", at);
  if (what == Planted::kDanglingLink) fs::create_symlink(dir / "ghost", at);
  if (what == Planted::kFifo) REQUIRE(::mkfifo(at.c_str(), 0666) == 0);
  if (what == Planted::kFolder) fs::create_directory(at);
}

}  // namespace

TEST_CASE("volume: what others put where the helper makes files is not followed", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  spill(dir / "precious", "precious");
  REQUIRE(loop.wait(v.exists(dir.path())));
  const Planted what =
      GENERATE(Planted::kLink, Planted::kDanglingLink, Planted::kFifo, Planted::kFolder);
  char host[256] = {};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  const int pid = v.helper_pid();
  for (const std::string& name : {fmt::format("{}/f.{}.{}.new", dir.path(), host, pid),
                                  fmt::format("{}/f.{}.tmp", dir.path(), pid)}) {
    const auto again = [&] {
      fs::remove(dir / "f");
      plant(what, name, dir);
    };
    again();
    CHECK(loop.wait(v.replace(dir / "f", "a")));
    CHECK(slurp(dir / "f") == "a");
    plant(what, name, dir);
    CHECK(loop.wait(v.rewrite(dir / "f", "b")));
    CHECK(slurp(dir / "f") == "b");
    again();
    CHECK(loop.wait(v.write_new(dir / "f", "c")));
    CHECK(slurp(dir / "f") == "c");
    again();
    CHECK(loop.wait(v.link(dir / "f", "elsewhere")));
    CHECK(fs::read_symlink(dir / "f") == "elsewhere");
    fs::remove(name);
  }
  plant(what, dir / "f", dir);
  CHECK_FALSE(loop.wait(v.append(dir / "f", "x")));
  CHECK_FALSE(loop.wait(v.append(dir / "f", "x", 8)));
  CHECK_FALSE(loop.wait(v.truncate(dir / "f", 0)));
  CHECK(slurp(dir / "precious") == "precious");
  CHECK_FALSE(fs::exists(dir / "ghost"));
  CHECK(v.helper_pid() == pid);
}

TEST_CASE("volume: a user's file that is written stays a link, with its mode, group and owner",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  const auto write = [&](const char* name, const std::string& text) {
    return loop.wait(loop.volume.rewrite(dir / name, text));
  };
  fs::create_directory(dir / "config");
  fs::create_directory(dir / "between");
  spill(dir / "config/hosts", "a\n");
  REQUIRE(::chmod((dir / "config/hosts").c_str(), 0664) == 0);
  const bool is_root = ::geteuid() == 0;
  if (is_root) REQUIRE(::chown((dir / "config/hosts").c_str(), 12345, 54321) == 0);
  fs::create_symlink("../config/hosts", dir / "between/hosts");
  fs::create_symlink("between/hosts", dir / "chain");
  fs::create_symlink(dir / "config/hosts", dir / "host_worker");
  const auto is_kept = [&] {
    struct stat now {};
    REQUIRE(::stat((dir / "config/hosts").c_str(), &now) == 0);
    return (now.st_mode & 07777) == 0664 &&
           (!is_root || (now.st_uid == 12345 && now.st_gid == 54321)) &&
           std::distance(fs::directory_iterator(dir / "config"), fs::directory_iterator()) == 1;
  };
  CHECK(write("host_worker", "b\n"));
  CHECK(fs::is_symlink(dir / "host_worker"));
  CHECK(slurp(dir / "config/hosts") == "b\n");
  CHECK(is_kept());
  CHECK(write("chain", "c\n"));
  CHECK(fs::is_symlink(dir / "chain"));
  CHECK(fs::is_symlink(dir / "between/hosts"));
  CHECK(slurp(dir / "config/hosts") == "c\n");
  CHECK(is_kept());
  fs::create_symlink("nowhere", dir / "dangling");
  CHECK_FALSE(write("dangling", "d\n"));
  CHECK_FALSE(fs::exists(dir / "nowhere"));
  fs::create_symlink("circle", dir / "circle");
  CHECK_FALSE(write("circle", "d\n"));
  if (is_root) {
    REQUIRE(::lchown((dir / "host_worker").c_str(), 23456, 23456) == 0);
    const auto foreign = write("host_worker", "e\n");
    REQUIRE_FALSE(foreign);
    CHECK(foreign.error().message.find("follow another user's link ") != std::string::npos);
    CHECK(slurp(dir / "config/hosts") == "c\n");
  }
  CHECK(write("new", "f\n"));
  CHECK(slurp(dir / "new") == "f\n");
}

TEST_CASE("volume: with another job's lock nothing outside of our own folder is written",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  fs::create_directory(dir / "own");
  spill(dir / "lock", "ours");
  spill(dir / "host_worker", "");
  v.write_only_with(dir / "lock", "ours", dir / "own");
  // All of it waits before the first is done, and the third takes the lock away.
  std::vector<Result<void>> done;
  const auto does = [&](io::awaitable<Result<void>> work) -> io::awaitable<void> {
    auto result = co_await std::move(work);
    done.push_back(std::move(result));
  };
  loop.group.spawn(does(v.rewrite(dir / "host_worker", "ours\n")));
  loop.group.spawn(does(v.append(dir / "log", "ours\n")));
  loop.group.spawn(does(v.replace(dir / "lock", "theirs")));
  loop.group.spawn(does(v.rewrite(dir / "host_worker", "late\n")));
  loop.group.spawn(does(v.replace(dir / "current.json", "late\n")));
  loop.group.spawn(does(v.append(dir / "log", "late\n")));
  loop.group.spawn(does(v.rename(dir / "log", dir / "own/log")));
  loop.group.spawn(does(v.remove(dir / "lock")));
  loop.group.spawn(does(v.append(dir / "own/log", "ours\n")));
  REQUIRE(loop.until([&] { return done.size() == 9; }));
  for (const std::size_t n : {0U, 1U, 2U, 8U}) CHECK(done[n]);
  for (const std::size_t n : {3U, 4U, 5U, 6U, 7U}) {
    REQUIRE_FALSE(done[n]);
    CHECK(done[n].error().kind == ErrorKind::kInvalid);
  }
  CHECK(done[3].error().message ==
        fmt::format("{} is not this job's any more: {} stays", dir / "lock", dir / "host_worker"));
  CHECK(slurp(dir / "host_worker") == "ours\n");
  CHECK(slurp(dir / "log") == "ours\n");
  CHECK(slurp(dir / "lock") == "theirs");
  CHECK_FALSE(fs::exists(dir / "current.json"));
  CHECK(slurp(dir / "own/log") == "ours\n");
  CHECK(loop.wait(v.read(dir / "host_worker"))->value() == "ours\n");
}

TEST_CASE("volume: errors name the file and what was wrong with it", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  spill(dir / "big", std::string(2000, 'x'));
  const auto big = loop.wait(loop.volume.read(dir / "big", 1000));
  REQUIRE_FALSE(big);
  CHECK(big.error().message.find(dir / "big") != std::string::npos);
  const auto folder = loop.wait(loop.volume.read(dir.path()));
  REQUIRE_FALSE(folder);
  CHECK(folder.error().message.find("Is a directory") != std::string::npos);
  const auto full = loop.wait(loop.volume.append("/dev/full", "x"));
  REQUIRE_FALSE(full);
  CHECK(full.error().message == "open /dev/full, which is no plain file: Invalid argument");
}

TEST_CASE("volume: an append that knows the size before may be repeated, even after a part of it",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  spill(dir / "log", "0 A\n");
  for (const char* there : {"0 A\n", "0 A\n1", "0 A\n1 B\n"}) {
    spill(dir / "log", there);
    CHECK(loop.wait(loop.volume.append(dir / "log", "1 B\n", 4)));
    CHECK(slurp(dir / "log") == "0 A\n1 B\n");
  }
  for (const char* other : {"0", "0 A\nmine\n", "0 A\n1 B\n2 C\n"}) {
    spill(dir / "log", other);
    const auto done = loop.wait(loop.volume.append(dir / "log", "1 B\n", 4));
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::kInvalid);
    CHECK(slurp(dir / "log") == other);
  }
}

TEST_CASE(
    "volume: stalled, a call fails at its deadline, and afterwards everything is done in order",
    "[volume]") {
  TempDir dir;
  supervisor::VolumeClient::Options options;
  options.deadline = 500ms;
  VolumeLoop loop(options);
  auto& v = loop.volume;
  // The helper must be started first, which may take longer than the deadline.
  REQUIRE(loop.until([&] { return loop.wait(v.exists(dir.path())).has_value(); }));
  REQUIRE(loop.wait(v.append(dir / "log", "0\n")));
  REQUIRE(::kill(v.helper_pid(), SIGSTOP) == 0);

  const auto begin = std::chrono::steady_clock::now();
  const auto read = loop.wait(v.read(dir / "log"));
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE_FALSE(read);
  CHECK(read.error().kind == ErrorKind::kTimeout);
  CHECK(read.error().message == "the shared volume does not answer: " + (dir / "log"));
  CHECK(took < 5s);
  CHECK(v.stalled_for() >= 500ms);

  for (int i = 1; i <= 50; ++i) v.queue_append(dir / "log", fmt::format("{}\n", i));
  // Timed out before it began: it must not be done when the volume continues.
  CHECK_FALSE(loop.wait(v.write_new(dir / "late", "x")));
  REQUIRE(::kill(v.helper_pid(), SIGCONT) == 0);
  REQUIRE(loop.wait(v.drain(20s)));
  std::string want;
  for (int i = 0; i <= 50; ++i) want += fmt::format("{}\n", i);
  CHECK(slurp(dir / "log") == want);
  CHECK_FALSE(fs::exists(dir / "late"));
  CHECK(v.stalled_for() == Duration::zero());
  CHECK(loop.wait(v.read(dir / "log"))->value() == want);
}

TEST_CASE("volume: a helper that is killed is replaced and the queue goes on", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.append(dir / "log", "0\n")));
  const int first = v.helper_pid();
  REQUIRE(::kill(first, SIGSTOP) == 0);
  std::string want = "0\n";
  for (int i = 1; i <= 20; ++i) {
    const std::string line = fmt::format("{}\n", i);
    v.queue_append(dir / "log", line);
    want += line;
  }
  REQUIRE(loop.until([&] { return v.stalled_for() > 10ms; }));
  REQUIRE(::kill(first, SIGKILL) == 0);
  REQUIRE(loop.wait(v.drain(20s)));
  CHECK(slurp(dir / "log") == want);
  CHECK(v.helper_pid() != first);
}

TEST_CASE("volume: an append at a known size is repeated when the helper dies over it",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.append(dir / "log", "0\n")));
  const int pid = v.helper_pid();
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  std::optional<Result<void>> done;
  auto add = [&]() -> io::awaitable<void> {
    auto result = co_await v.append(dir / "log", "1\n", 2);
    done.emplace(std::move(result));
  };
  loop.group.spawn(add());
  REQUIRE(loop.until([&] { return v.stalled_for() > 0ms; }));
  REQUIRE(::kill(pid, SIGKILL) == 0);
  REQUIRE(loop.until([&] { return done.has_value(); }));
  CHECK(*done);
  CHECK(slurp(dir / "log") == "0\n1\n");
}

TEST_CASE("volume: what cannot be repeated safely is reported when the helper dies over it",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.exists(dir / "x")));
  const int pid = v.helper_pid();
  REQUIRE(::kill(pid, SIGSTOP) == 0);
  std::optional<Result<bool>> made;
  auto make = [&]() -> io::awaitable<void> {
    auto result = co_await v.write_new(dir / "x", "x");
    made.emplace(std::move(result));
  };
  loop.group.spawn(make());
  REQUIRE(loop.until([&] { return v.stalled_for() > 0ms; }));
  REQUIRE(::kill(pid, SIGKILL) == 0);
  REQUIRE(loop.until([&] { return made.has_value(); }));
  REQUIRE_FALSE(*made);
  CHECK(made->error().kind == ErrorKind::kUnavailable);
}

TEST_CASE("volume: while it stalls, output is kept in bounded memory and the loss is said",
          "[volume]") {
  TempDir dir;
  supervisor::VolumeClient::Options options;
  options.queue_limit = 16'000;
  VolumeLoop loop(options);
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.append(dir / "out", "first\n")));
  REQUIRE(::kill(v.helper_pid(), SIGSTOP) == 0);
  int changes = 0;  // somebody waits for them: they are no output
  const auto change = [&]() -> io::awaitable<void> {
    if (co_await v.append(dir / "changes", "0 ADDED h 1\n")) ++changes;
  };
  for (int i = 0; i < 2; ++i) loop.group.spawn(change());
  REQUIRE(loop.until([&] { return v.stalled_for() > 0ms; }));
  std::size_t done = 0;
  v.on_output_done = [&done](const std::string&, std::size_t bytes) { done += bytes; };
  for (int i = 0; i < 100; ++i) v.queue_append(dir / "out", std::string(999, 'o') + "\n");
  const std::uint64_t dropped = v.dropped_bytes();
  CHECK(dropped >= 100'000 - 16'000);
  CHECK(dropped < 100'000);
  CHECK(v.waiting().output_bytes == 100'000 - dropped);
  CHECK(v.waiting().requests == 2);
  CHECK(v.waiting().output_age > 0s);
  REQUIRE(::kill(v.helper_pid(), SIGCONT) == 0);
  REQUIRE(loop.wait(v.drain(20s)));
  const std::string out = slurp(dir / "out");
  CHECK(out.find(fmt::format("first\n\n[dtlaunch: {} bytes are missing here", dropped)) == 0);
  CHECK(std::count(out.begin(), out.end(), 'o') ==
        static_cast<std::ptrdiff_t>(100'000 - dropped) / 1000 * 999 + 2);  // and in "volume", "not"
  CHECK(done == 100'000);
  CHECK(loop.until([&] { return changes == 2; }));
  CHECK(slurp(dir / "changes") == "0 ADDED h 1\n0 ADDED h 1\n");
  CHECK(v.waiting().appends + v.waiting().requests == 0);
  CHECK(v.waiting().age == 0s);
}

TEST_CASE("volume: output that cannot be written leaves a line with the reason", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  std::size_t done = 0;
  loop.volume.on_output_done = [&done](const std::string&, std::size_t bytes) { done += bytes; };
  fs::create_directory(dir / "log");
  loop.volume.queue_append(dir / "log", "lost");
  REQUIRE(loop.until([&] { return done == 4; }));
  fs::remove(dir / "log");
  loop.volume.queue_append(dir / "log", "there");
  REQUIRE(loop.until([&] { return done == 9; }));
  CHECK(slurp(dir / "log") == fmt::format("\n[dtlaunch: 4 bytes are missing here: open {}: Is a "
                                          "directory]\nthere",
                                          dir / "log"));
}

TEST_CASE("volume: on a slow volume a request does not wait for the output of many files",
          "[volume]") {
  TempDir dir;
  spill(dir / "host_worker", "a\n");
  fs::create_directory(dir / "logs");
  Loop loop;
  supervisor::VolumeClient::Options options;
  options.helper = {"/usr/bin/env", "LD_PRELOAD=" DT_SLOW_OPEN, "DT_SLOW_OPEN_MS=20",
                    DT_SUPERVISOR_PROGRAM, "--volume-helper"};
  supervisor::VolumeClient volume(loop.context.get_executor(), options);
  loop.group.spawn(volume.run());
  REQUIRE(loop.wait(volume.exists(dir.path())));
  constexpr int kFiles = 150;
  const auto step = [&] {
    for (int i = 0; i < kFiles; ++i)
      volume.queue_append(dir / fmt::format("logs/worker-{}.log", i), "\rstep");
  };
  const auto written = [&] {
    return std::distance(fs::directory_iterator(dir / "logs"), fs::directory_iterator());
  };
  step();
  CHECK(loop.wait(volume.read(dir / "host_worker"))->value() == "a\n");
  CHECK(written() < kFiles / 2);
  // What comes while they wait goes into the same appends: not one open() more.
  for (int i = 0; i < 20; ++i) step();
  CHECK(loop.wait(volume.replace(dir / "host_worker", "a\nb\n")));
  CHECK(written() < kFiles / 2);
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(loop.wait(volume.drain(60s)));
  CHECK(std::chrono::steady_clock::now() - begun < 20ms * kFiles * 5);
  std::string whole;
  for (int i = 0; i < 21; ++i) whole += "\rstep";
  for (int i = 0; i < kFiles; ++i)
    CHECK(slurp(dir / fmt::format("logs/worker-{}.log", i)) == whole);
  volume.stop();
  CHECK(loop.finished());
}

TEST_CASE("volume: a request about a file comes after that file's earlier output", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.exists(dir.path())));
  for (const char* name : {"a", "b", "c"}) v.queue_append(dir / name, "1\n");
  CHECK(loop.wait(v.read(dir / "c"))->value_or("") == "1\n");
  v.queue_append(dir / "c", "2\n");
  CHECK(loop.wait(v.rename(dir / "c", dir / "d")));
  CHECK(slurp(dir / "d") == "1\n2\n");
  v.queue_append(dir / "d", "3\n");
  CHECK(loop.wait(v.append(dir / "d", "4\n", 4, true)).error().kind == ErrorKind::kInvalid);
  CHECK(loop.wait(v.append(dir / "d", "4\n", 6, true)));
  CHECK(slurp(dir / "d") == "1\n2\n3\n4\n");
}

TEST_CASE("volume: requests without a pause do not keep output back for ever", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  REQUIRE(loop.wait(v.exists(dir.path())));
  REQUIRE(::kill(v.helper_pid(), SIGSTOP) == 0);
  int asked = 0;
  int asking = 4;
  const auto ask = [&]() -> io::awaitable<void> {
    while (!fs::exists(dir / "out") && asked < 1000) {
      static_cast<void>(co_await v.exists(dir / "x"));
      ++asked;
    }
    --asking;
  };
  for (int i = asking; i > 0; --i) loop.group.spawn(ask());
  REQUIRE(loop.until([&] { return v.stalled_for() > 0ms; }));
  for (const char* name : {"other", "out"}) v.queue_append(dir / name, "x");
  REQUIRE(::kill(v.helper_pid(), SIGCONT) == 0);
  REQUIRE(loop.until([&] { return asking == 0 || fs::exists(dir / "out"); }));
  CHECK(asked < 100);
  REQUIRE(loop.until([&] { return asking == 0; }));  // they use what is above
}

TEST_CASE("volume: the watched file's changes are hinted, others not, also by a new helper",
          "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  int hints = 0;
  v.on_hint = [&] { ++hints; };
  v.watch(dir.path(), "host_worker");
  REQUIRE(loop.wait(v.exists(dir / "x")));
  spill(dir / "other", "x");
  REQUIRE(loop.wait(v.exists(dir / "x")));
  CHECK(hints == 0);
  spill(dir / "host_worker", "x");
  CHECK(loop.until([&] { return hints > 0; }));
  ::kill(v.helper_pid(), SIGKILL);
  (void)loop.wait(v.exists(dir / "x"));
  REQUIRE(loop.wait(v.drain(5s)));
  hints = 0;
  spill(dir / "host_worker", "y");
  CHECK(loop.until([&] { return hints > 0; }));
}

TEST_CASE("volume: what others write in the watched folder hardly wakes the helper", "[volume]") {
  TempDir dir;
  VolumeLoop loop;
  auto& v = loop.volume;
  v.watch(dir.path(), "host_worker");
  REQUIRE(loop.wait(v.exists(dir / "x")));
  const auto wakes = [&v] {
    const std::string status = slurp(fmt::format("/proc/{}/status", v.helper_pid()));
    const std::string name = "\nvoluntary_ctxt_switches:";
    return std::stol(status.substr(status.find(name) + name.size()));
  };
  const long before = wakes();
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begun + 300ms) {
    spill(dir / "log", "a line\n");
  }
  const auto took = std::chrono::steady_clock::now() - begun;
  CHECK(wakes() - before <= 2 * (took / 50ms) + 5);
}

TEST_CASE("volume: a helper that cannot be started is an error, not a hang", "[volume]") {
  Loop loop;
  supervisor::VolumeClient::Options options;
  options.helper = {"/nonexistent/helper"};
  supervisor::VolumeClient v(loop.context.get_executor(), options);
  loop.group.spawn(v.run());
  const auto there = loop.wait(v.exists("/"));
  REQUIRE_FALSE(there);
  CHECK(there.error().message.find("/nonexistent/helper") != std::string::npos);
  v.stop();
  CHECK(loop.finished());
}

TEST_CASE("volume: the helper ends when its client is gone", "[volume]") {
  TempDir dir;
  int pid = 0;
  {
    VolumeLoop loop;
    REQUIRE(loop.wait(loop.volume.exists(dir / "x")));
    pid = loop.volume.helper_pid();
    REQUIRE(::kill(pid, 0) == 0);
  }
  Loop loop;
  CHECK(loop.until([&] {
    const std::string stat = slurp(fmt::format("/proc/{}/stat", pid));
    return stat.empty() || stat.find(") Z ") != std::string::npos;
  }));
}
