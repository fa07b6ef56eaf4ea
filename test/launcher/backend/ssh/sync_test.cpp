#include "launcher/backend/ssh/sync.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

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
    const auto done = client.wait(sync_folder(client.backend, sshd.host(1), source, target));
    const auto again = client.wait(sync_folder(client.backend, sshd.host(2), source, target));
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

TEST_CASE("sync: the host that failed is named with the tool's words", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  test::write_file(sshd.dir() + "/file", "");
  const auto mkdir = client.wait(
      sync_folder(client.backend, sshd.host(1), sshd.dir() + "/bundle", sshd.dir() + "/file/x"));
  REQUIRE_FALSE(mkdir);
  CHECK(contains(mkdir.error().message, fmt::format("{}: sync: mkdir", sshd.host(1))));
  const auto gone = client.wait(
      sync_folder(client.backend, sshd.host(1), sshd.dir() + "/none", sshd.dir() + "/target"));
  REQUIRE_FALSE(gone);
  INFO(gone.error().message);
  CHECK(contains(gone.error().message,
                 fmt::format("{}: sync: rsync ended with exit code 23", sshd.host(1))));
  const auto unreachable = client.wait(
      sync_folder(client.backend, Host{"", "127.0.0.1", 1}, sshd.dir(), sshd.dir() + "/target"));
  REQUIRE_FALSE(unreachable);
  CHECK(contains(unreachable.error().message, "127.0.0.1:1: connect to 127.0.0.1 port 1"));
}
