#include "launcher/backend/sync.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

namespace {

std::shared_ptr<io::Semaphore> window(Client& client, std::size_t copies = kSyncs) {
  return std::make_shared<io::Semaphore>(client.context.get_executor(), copies);
}

/// A stand-in for rsync, first in PATH for its lifetime.
class FakeRsync {
 public:
  explicit FakeRsync(const std::string& script) : path_(std::getenv("PATH")) {
    test::write_file(folder_ / "rsync", "#!/bin/sh\n" + script, 0700);
    ::setenv("PATH", (folder_.path() + ":" + path_).c_str(), 1);
  }
  ~FakeRsync() { ::setenv("PATH", path_.c_str(), 1); }
  FakeRsync(const FakeRsync&) = delete;
  FakeRsync& operator=(const FakeRsync&) = delete;

 private:
  test::TempDir folder_;
  std::string path_;
};

}  // namespace

TEST_CASE("sync: the folder arrives on a host by rsync and by tar, nothing is deleted", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string source = sshd.dir() + "/work";
  std::filesystem::create_directories(source + "/sub dir");
  std::filesystem::create_directories(source + "/.dtlaunch/old");
  test::write_file(source + "/sub dir/data", noise(100'000));
  test::write_file(source + "/run.sh", "#!/bin/sh\n", 0755);
  Client client(sshd.options());
  for (const bool with_rsync : {true, false}) {
    const std::string path = std::getenv("PATH");
    // Without rsync here the tar way is taken.
    const test::TempDir tools;
    if (!with_rsync) {
      for (const char* name : {"tar", "gzip"})
        std::filesystem::create_symlink(std::string("/bin/") + name, tools / name);
      ::setenv("PATH", tools.path().c_str(), 1);
    }
    const std::string target = fmt::format("{}/it's {}", sshd.dir(), with_rsync);
    std::filesystem::create_directories(target);
    test::write_file(target + "/keep", "mine");
    const auto done =
        client.wait(sync_folder(client.backend, window(client), sshd.host(1), source, target));
    const auto again =
        client.wait(sync_folder(client.backend, window(client), sshd.host(2), source, target));
    ::setenv("PATH", path.c_str(), 1);
    INFO((done ? "" : done.error().message));
    REQUIRE(done);
    REQUIRE(again);
    CHECK(test::read_file(target + "/sub dir/data") == noise(100'000));
    CHECK(::access((target + "/run.sh").c_str(), X_OK) == 0);
    CHECK(test::read_file(target + "/keep") == "mine");
    CHECK_FALSE(std::filesystem::exists(target + "/.dtlaunch"));
  }
}

TEST_CASE("sync: one that is cancelled ends rsync, however long that would run", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const std::string pid_file = sshd.dir() + "/pid";
  const FakeRsync rsync("echo $$ >" + pid_file + "\nexec sleep 1000\n");
  io::TaskGroup group(client.context.get_executor());
  auto sync = [&]() -> io::awaitable<void> {
    co_await sync_folder(client.backend, window(client), sshd.host(), sshd.dir(),
                         sshd.dir() + "/target");
  };
  group.spawn(sync());
  while (!group.idle() && !test::read_file(pid_file).ends_with('\n')) {
    client.context.restart();
    client.context.run_one_for(20ms);
  }
  REQUIRE_FALSE(group.idle());
  group.cancel();
  client.finish(group);
  const pid_t left = std::stoi(test::read_file(pid_file));
  CHECK(eventually(20, [&] { return ::kill(left, 0) != 0; }));
}

TEST_CASE("sync: no more copies at once than the window lets through", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const std::string log = sshd.dir() + "/order";
  const FakeRsync rsync(fmt::format("echo begin >>{0}; sleep 0.2; echo end >>{0}\n", log));
  const auto one_at_once = window(client, 1);
  io::TaskGroup group(client.context.get_executor());
  auto sync = [&](int i) -> io::awaitable<void> {
    co_await sync_folder(client.backend, one_at_once, sshd.host(i), sshd.dir(),
                         sshd.dir() + "/target");
  };
  for (int i = 1; i <= 3; ++i) group.spawn(sync(i));
  client.finish(group);
  CHECK(test::read_file(log) == "begin\nend\nbegin\nend\nbegin\nend\n");
}

TEST_CASE("sync: the host that failed is named with the tool's words", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  test::write_file(sshd.dir() + "/file", "");
  const auto mkdir = client.wait(sync_folder(client.backend, window(client), sshd.host(1),
                                             sshd.dir() + "/bundle", sshd.dir() + "/file/x"));
  REQUIRE_FALSE(mkdir);
  CHECK(contains(mkdir.error().message, fmt::format("{}: sync: mkdir", sshd.host(1))));
  const auto gone = client.wait(sync_folder(client.backend, window(client), sshd.host(1),
                                            sshd.dir() + "/none", sshd.dir() + "/target"));
  REQUIRE_FALSE(gone);
  INFO(gone.error().message);
  CHECK(contains(gone.error().message,
                 fmt::format("{}: sync: rsync ended with exit code 23", sshd.host(1))));
  const auto unreachable =
      client.wait(sync_folder(client.backend, window(client), Host{"", "127.0.0.1", 1}, sshd.dir(),
                              sshd.dir() + "/target"));
  REQUIRE_FALSE(unreachable);
  CHECK(contains(unreachable.error().message, "127.0.0.1:1: connect to 127.0.0.1 port 1"));
}
