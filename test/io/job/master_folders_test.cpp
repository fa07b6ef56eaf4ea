#include "io/job/master_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::io;

namespace {

FolderFacts facts_of(std::optional<std::string> given, std::string remote_below = "") {
  FolderFacts facts;
  facts.given = std::move(given);
  facts.home = "/homes/u";
  facts.uid = 1000;
  facts.remote = [remote_below](const std::string& path) -> std::string {
    return !remote_below.empty() && path.starts_with(remote_below) ? "NFS" : "";
  };
  facts.owner = [](const std::string& path) -> std::optional<unsigned> {
    return path == "/run/user/0" ? 0U : 1000U;
  };
  return facts;
}

}  // namespace

TEST_CASE("master folders: the state lies in the home, unless that is on a network file system",
          "[master_folders]") {
  const auto usual = choose_state_home(facts_of(std::nullopt));
  CHECK(usual.path == "/homes/u/.local/state/dtlaunch");
  CHECK(usual.notice.empty());
  const auto moved = choose_state_home(facts_of(std::nullopt, "/homes"));
  CHECK(moved.path == "/var/tmp/dtlaunch-1000");
  CHECK(moved.notice.find("/homes/u is on NFS") != std::string::npos);
  CHECK(choose_state_home(facts_of(std::nullopt, "/")).path == usual.path);  // nothing is better
}

TEST_CASE("master folders: a given XDG_STATE_HOME is kept, and warned of", "[master_folders]") {
  CHECK(choose_state_home(facts_of("/local")).notice.empty());
  const auto kept = choose_state_home(facts_of("/nfs/state", "/nfs"));
  CHECK(kept.path == "/nfs/state/dtlaunch");
  CHECK(kept.notice.find("which is on NFS") != std::string::npos);
}

TEST_CASE("master folders: sockets lie in /tmp where XDG_RUNTIME_DIR cannot be used",
          "[master_folders]") {
  constexpr std::size_t kLetters = 24;
  CHECK(choose_runtime_home(facts_of("/run/user/1000"), kLetters).path ==
        "/run/user/1000/dtlaunch");
  CHECK(choose_runtime_home(facts_of(std::nullopt), kLetters).path == "/tmp/dtlaunch-1000");
  const auto of_root = choose_runtime_home(facts_of("/run/user/0"), kLetters);
  CHECK(of_root.path == "/tmp/dtlaunch-1000");
  CHECK(of_root.notice.find("belongs to another user") != std::string::npos);
  const auto is_long = choose_runtime_home(facts_of("/" + std::string(110, 'x')), kLetters);
  CHECK(is_long.path == "/tmp/dtlaunch-1000");
  CHECK(is_long.notice.find("at most 107 characters") != std::string::npos);
}

TEST_CASE("master folders: what a path lies on is found, also before it is there",
          "[master_folders]") {
  CHECK(remote_file_system("/proc/no/such/folder").empty());
  CHECK(remote_file_system("/").empty());
}

TEST_CASE("master folders: a folder where all may write has to be the user's own, and no link",
          "[master_folders]") {
  std::string folder = "/var/tmp/dt-test-XXXXXX";
  REQUIRE(::mkdtemp(folder.data()));
  const MasterFolder home{folder + "/homes", "", "HOME"};
  SECTION("made") {
    REQUIRE(make_job_folder(home, "job"));
    struct stat st {};
    for (const char* one : {"/homes", "/homes/job"}) {
      REQUIRE(::stat((folder + one).c_str(), &st) == 0);
      CHECK((st.st_mode & 0777) == 0700);
    }
    ::rmdir((folder + "/homes/job").c_str());
    ::rmdir((folder + "/homes").c_str());
  }
  SECTION("a link") {
    REQUIRE(::symlink("/tmp", (folder + "/homes").c_str()) == 0);
    const auto made = make_job_folder(home, "job");
    REQUIRE_FALSE(made);
    CHECK(made.error().message.find("must be a folder of yours") != std::string::npos);
    ::unlink((folder + "/homes").c_str());
  }
  SECTION("open for others") {
    REQUIRE(::mkdir((folder + "/homes").c_str(), 0700) == 0);
    REQUIRE(::chmod((folder + "/homes").c_str(), 0777) == 0);
    CHECK_FALSE(make_job_folder(home, "job"));
    ::rmdir((folder + "/homes").c_str());
  }
  ::rmdir(folder.c_str());
}
