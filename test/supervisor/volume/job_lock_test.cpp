#include "supervisor/volume/job_lock.h"

#include <sys/wait.h>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace dt::supervisor;

namespace {

io::LockHolder holder_of_job(const std::string& job) { return io::this_process(job); }

/// The pid of a process that has ended.
std::int64_t gone_pid() {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  ::waitpid(pid, nullptr, 0);
  return pid;
}

}  // namespace

TEST_CASE("job lock: a second job in the folder is refused, by name, pid and remedy",
          "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  const io::LockHolder first = holder_of_job("first");
  REQUIRE(loop.wait(take_job_lock(loop.volume, dir.path(), first)));
  const auto second = loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("second")));
  REQUIRE_FALSE(second);
  CHECK(second.error().kind == ErrorKind::kDenied);
  for (const auto& part : {std::string("job first"), fmt::format("pid {}", ::getpid()),
                           std::string("dtctl stop"), dir.path()})
    CHECK(second.error().message.find(part) != std::string::npos);

  REQUIRE(loop.wait(drop_job_lock(loop.volume, dir.path(), holder_of_job("second"))));
  CHECK(fs::exists(dir / ".dtlaunch/lock"));
  REQUIRE(loop.wait(drop_job_lock(loop.volume, dir.path(), first)));
  CHECK_FALSE(fs::exists(dir / ".dtlaunch/lock"));
}

TEST_CASE("job lock: one whose process is gone is taken over", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  io::LockHolder me = holder_of_job("new");
  me.machine = "this one";  // not every system has an id
  std::vector<io::LockHolder> stale(3, me);
  for (io::LockHolder& old : stale) old.job = "old";
  stale[0].pid = gone_pid();
  stale[0].start = 12345;
  stale[1].start += 1;  // the pid belongs to another process
  stale[2].boot_id = "an earlier boot";
  for (const auto& old : stale) {
    fs::create_directories(dir / ".dtlaunch");
    spill(dir / ".dtlaunch/lock", to_json(old));
    REQUIRE(loop.wait(take_job_lock(loop.volume, dir.path(), me)));
    CHECK(slurp(dir / ".dtlaunch/lock") == to_json(me));
    CHECK(loop.wait(loop.volume.list(dir / ".dtlaunch")).value() ==
          std::vector<std::string>{"lock"});
  }
}

TEST_CASE("job lock: a holder that has ended and whose parent did not notice is gone",
          "[job_lock]") {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(0);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK(io::process_start(pid) == 0);
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("job lock: one of another host is never taken over, and the remedy is named",
          "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  io::LockHolder far = holder_of_job("far");
  const bool namesake = GENERATE(false, true);  // machines made from one image may share a name
  far.host = namesake ? far.host : "elsewhere";
  far.machine = "another";
  far.pid = gone_pid();
  far.boot_id = "another boot";
  fs::create_directories(dir / ".dtlaunch");
  spill(dir / ".dtlaunch/lock", to_json(far));
  const auto taken = loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("new")));
  REQUIRE_FALSE(taken);
  const std::string name = namesake ? "another host named " + far.host : "host elsewhere";
  CHECK(taken.error().message.find(name + ", boot another boot)") != std::string::npos);
  CHECK(taken.error().message.find("rm " + (dir / ".dtlaunch/lock")) != std::string::npos);
  CHECK(slurp(dir / ".dtlaunch/lock") == to_json(far));
  // With force it is taken, and the previous holder can see that.
  const io::LockHolder me = holder_of_job("new");
  const auto forced = loop.wait(take_job_lock(loop.volume, dir.path(), me, true));
  REQUIRE(forced);
  CHECK(*forced);
  const auto seen = loop.wait(job_lock_holder(loop.volume, dir.path()));
  REQUIRE(seen);
  CHECK(*seen == me);
}

TEST_CASE("job lock: force takes nothing from one that is seen to live", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  const auto first = loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("first")));
  REQUIRE(first);
  CHECK_FALSE(*first);
  const auto forced =
      loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("second"), true));
  REQUIRE_FALSE(forced);
  CHECK(forced.error().kind == ErrorKind::kDenied);
}

TEST_CASE("job lock: without machine ids another boot may be another host's", "[job_lock]") {
  io::LockHolder me = holder_of_job("new");
  io::LockHolder other = me;
  other.job = "old";
  other.boot_id = "another boot";
  me.machine = other.machine = "m";
  CHECK(io::is_stale(other, me));
  me.machine = other.machine = "";
  CHECK_FALSE(io::is_stale(other, me));
}

TEST_CASE("job lock: nothing can be seen of a holder in another PID namespace", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  io::LockHolder other = holder_of_job("old");
  other.pid_namespace += 1;  // the host's name is the same, as with docker run --net=host
  other.pid = gone_pid();
  CHECK_FALSE(io::is_stale(other, holder_of_job("new")));
  CHECK_FALSE(io::is_stale(other, holder_of_job("old")));
  fs::create_directories(dir / ".dtlaunch");
  spill(dir / ".dtlaunch/lock", to_json(other));
  const auto taken = loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("new")));
  REQUIRE_FALSE(taken);
  CHECK(taken.error().message.find("in another PID namespace of this machine") !=
        std::string::npos);
  CHECK(slurp(dir / ".dtlaunch/lock") == to_json(other));
}

TEST_CASE("job lock: the host's name may change under a job", "[job_lock]") {
  io::LockHolder before = holder_of_job("same");
  before.host = "before-dhcp";
  CHECK(io::is_stale(before, holder_of_job("same")));
  before.job = "another";
  CHECK_FALSE(io::is_stale(before, holder_of_job("same")));  // its process lives and is visible
  before.pid = gone_pid();
  CHECK(io::is_stale(before, holder_of_job("same")));
}

TEST_CASE("job lock: one of before there were namespaces in it goes by the host's name",
          "[job_lock]") {
  io::LockHolder old = holder_of_job("old");
  old.pid_namespace = 0;
  old.pid = gone_pid();
  CHECK(io::is_stale(old, holder_of_job("new")));
  old.host = "container";
  CHECK_FALSE(io::is_stale(old, holder_of_job("new")));
}

TEST_CASE("job lock: one that is just being written is waited for", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  fs::create_directories(dir / ".dtlaunch");
  spill(dir / ".dtlaunch/lock", "");
  std::optional<Result<bool>> taken;
  const auto take = [&]() -> io::awaitable<void> {
    auto result = co_await take_job_lock(loop.volume, dir.path(), holder_of_job("second"));
    taken.emplace(std::move(result));
  };
  loop.group.spawn(take());
  // Requests are served in order: after these the empty lock has been read.
  for (int i = 0; i < 5; ++i) REQUIRE(loop.wait(loop.volume.exists(dir.path())));
  spill(dir / ".dtlaunch/lock", to_json(holder_of_job("first")));
  REQUIRE(loop.until([&] { return taken.has_value(); }));
  REQUIRE_FALSE(*taken);
  CHECK(taken->error().message.find("job first is running") != std::string::npos);
}

TEST_CASE("job lock: a file that is no lock is not removed", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  fs::create_directories(dir / ".dtlaunch");
  const std::pair<const char*, const char*> cases[] = {{"", "it is no JSON"},
                                                       {"{", "it is no JSON"},
                                                       {"[]", "it is no JSON object"},
                                                       {"{\"job\":1}", "\"job\" is no text"},
                                                       {"{}", "\"job\" is missing"}};
  for (const auto& [text, why] : cases) {
    spill(dir / ".dtlaunch/lock", text);
    const auto taken = loop.wait(take_job_lock(loop.volume, dir.path(), holder_of_job("new")));
    REQUIRE_FALSE(taken);
    CHECK(taken.error().kind == ErrorKind::kDenied);
    CHECK_THAT(taken.error().message, Catch::Contains(fmt::format("({})", why)));
    CHECK(slurp(dir / ".dtlaunch/lock") == text);
  }
}

TEST_CASE("job lock: an ended job's files are set aside under its name", "[job_lock]") {
  TempDir dir;
  VolumeLoop loop;
  fs::create_directories(dir / ".dtlaunch");
  spill(dir / ".dtlaunch/current.json", R"({"job":"old"})");
  spill(dir / "host_worker", "h\n");
  spill(dir / "host_worker_log", "0 ADDED h 1\n");
  spill(dir / "train.py", "mine");
  fs::create_directories(dir / ".dtlaunch/old");
  spill(dir / ".dtlaunch/old/events.jsonl", "its story\n");
  fs::create_symlink(".dtlaunch/old/events.jsonl", dir / "events.jsonl");
  REQUIRE(loop.wait(set_old_files_aside(loop.volume, dir.path(), "new", true)));
  CHECK(slurp(dir / ".dtlaunch/old/host_worker") == "h\n");
  CHECK(slurp(dir / ".dtlaunch/old/host_worker_log") == "0 ADDED h 1\n");
  CHECK_FALSE(fs::exists(dir / "host_worker"));
  CHECK_FALSE(fs::is_symlink(dir / "events.jsonl"));
  CHECK(slurp(dir / ".dtlaunch/old/events.jsonl") == "its story\n");
  CHECK(slurp(dir / "train.py") == "mine");

  spill(dir / "host_worker", "by hand\n");
  spill(dir / ".dtlaunch/current.json", R"({"job":"../../etc"})");
  REQUIRE(loop.wait(set_old_files_aside(loop.volume, dir.path(), "new", false)));
  CHECK(slurp(dir / "host_worker") == "by hand\n");
  const auto moved = loop.wait(set_old_files_aside(loop.volume, dir.path(), "new", true));
  REQUIRE(moved);
  CHECK(*moved == dir / ".dtlaunch/before-new/host_worker");
  CHECK(slurp(dir / ".dtlaunch/before-new/host_worker") == "by hand\n");
  const auto nothing = loop.wait(set_old_files_aside(loop.volume, dir.path(), "new", true));
  REQUIRE(nothing);
  CHECK_FALSE(*nothing);
}
