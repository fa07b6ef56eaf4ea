#include "launcher/check/volume_probe.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using launcher::VolumeProbe;

TEST_CASE("volume probe: a check removes what a killed one has left, and nothing of one that lives",
          "[check]") {
  const test::TempDir dir;
  const pid_t killed = ::fork();
  if (killed == 0) {
    const auto abandoned = VolumeProbe::make(dir.path(), "a");
    ::_exit(abandoned ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(killed, &status, 0) == killed);
  REQUIRE(status == 0);
  REQUIRE(!std::filesystem::is_empty(dir.path()));
  {
    const auto alive = VolumeProbe::make(dir.path(), "b");
    REQUIRE(alive);
    const auto next = VolumeProbe::make(dir.path(), "c");
    REQUIRE(next);
    CHECK(test::read_file(alive->path() + "/master") == "b");
    const std::filesystem::directory_iterator left(dir.path());
    CHECK(std::distance(begin(left), end(left)) == 2);
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("volume probe: one without a file to lock is removed when it is old", "[check]") {
  const test::TempDir dir;
  namespace fs = std::filesystem;
  for (const char* name : {".dtlaunch-check-old", ".dtlaunch-check-new", "of-the-user"})
    fs::create_directory(dir / name);
  const auto hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  fs::last_write_time(dir / ".dtlaunch-check-old", hour_ago);
  fs::last_write_time(dir / "of-the-user", hour_ago);
  REQUIRE(VolumeProbe::make(dir.path(), "a"));
  CHECK_FALSE(fs::exists(dir / ".dtlaunch-check-old"));
  CHECK(fs::exists(dir / ".dtlaunch-check-new"));
  CHECK(fs::exists(dir / "of-the-user"));
}
