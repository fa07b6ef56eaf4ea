#include "io/job/master_folders.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/job/job_owner.h"
#include "io/stop_signals.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::io;

namespace {

struct Folder {
  std::string path = "/tmp/dtXXXXXX";
  Folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string operator/(const std::string& name) const { return path + "/" + name; }
};

FolderFacts facts_of(std::optional<std::string> given, std::string remote_below = "") {
  FolderFacts facts;
  facts.given = std::move(given);
  facts.home = "/homes/u";
  facts.uid = 1000;
  facts.remote = [remote_below](const std::string& path) -> std::string {
    return !remote_below.empty() && path.starts_with(remote_below) ? "NFS" : "";
  };
  facts.writable = [](const std::string&) { return true; };
  facts.owner = [](const std::string& path) -> std::optional<unsigned> {
    return path == "/run/user/0" ? 0U : 1000U;
  };
  return facts;
}

}  // namespace

TEST_CASE("master folders: a socket's folder is made again, or another one where it cannot be",
          "[master_folders]") {
  const Folder dir;
  const std::string socket = dir / "runtime/dtlaunch/20261120-223000-1a2b3c4d/control";
  std::filesystem::create_directory(dir / "runtime");
  ::setenv("XDG_RUNTIME_DIR", (dir / "other").c_str(), 1);
  std::filesystem::create_directory(dir / "other");
  REQUIRE(make_socket_folder(socket).value() == socket);
  CHECK(make_socket_folder(socket).value() == socket);  // it is there
  std::filesystem::remove_all(dir / "runtime/dtlaunch");
  CHECK(make_socket_folder(socket).value() == socket);
  // Others could replace the socket there.
  std::filesystem::permissions(dir / "runtime/dtlaunch/20261120-223000-1a2b3c4d",
                               std::filesystem::perms::all);
  const std::string moved = dir / "other/dtlaunch/20261120-223000-1a2b3c4d/control";
  CHECK(make_socket_folder(socket).value() == moved);
  std::filesystem::remove_all(dir / "runtime");  // the last session has ended
  CHECK(make_socket_folder(socket).value() == moved);
  ::unsetenv("XDG_RUNTIME_DIR");
}

TEST_CASE("job owner: files that others can write to, or links, are not used", "[job_owner]") {
  const Folder dir;
  const std::string job = dir / ".dtlaunch/j1";
  std::filesystem::create_directories(job);
  std::filesystem::create_directories(dir / "state");
  for (const auto& file : {dir / ".dtlaunch/current.json", job + "/spec.json"})
    std::ofstream(file) << "{}";
  JobPointer pointer;
  pointer.job = "j1";
  pointer.state_dir = dir / "state";
  const auto refused = [&] {
    const auto checked = check_job_owner(dir.path, pointer);
    return checked ? std::string() : checked.error().message;
  };
  CHECK(refused().empty());
  for (const std::string& path : {dir / ".dtlaunch", dir / ".dtlaunch/current.json", job,
                                  job + "/spec.json", pointer.state_dir}) {
    CAPTURE(path);
    const auto before = std::filesystem::status(path).permissions();
    std::filesystem::permissions(path, before | std::filesystem::perms::group_write);
    // A folder that shows what is made in it in the same way is a volume without owners.
    CHECK(refused().find("chmod go-w " + path) != std::string::npos);
    std::filesystem::permissions(path, before);
    CHECK(refused().empty());
    std::filesystem::rename(path, dir / "aside");
    std::filesystem::create_symlink(dir / "aside", path);
    CHECK(refused().find(path + " is a link") != std::string::npos);
    std::filesystem::remove(path);
    std::filesystem::rename(dir / "aside", path);
  }
}

TEST_CASE("stop signals: what comes within 200 ms is the same order", "[stop_signals]") {
  const StopOrders::Time begun{};
  const auto after = [&](int ms) {
    StopOrders orders;
    CHECK(orders.is_new(begun));
    return orders.is_new(begun + std::chrono::milliseconds(ms));
  };
  CHECK_FALSE(after(2));
  CHECK_FALSE(after(150));
  CHECK(after(300));
  CHECK(after(1000));
}

TEST_CASE("master folders: the state lies in the home, unless that is on a network file system",
          "[master_folders]") {
  const auto usual = choose_state_home(facts_of(std::nullopt));
  CHECK(usual.path == "/homes/u/.local/state/dtlaunch");
  CHECK(usual.notice.empty());
  const auto moved = choose_state_home(facts_of(std::nullopt, "/homes"));
  CHECK(moved.path == "/var/tmp/dtlaunch-1000");
  CHECK(moved.notice.find("/homes/u is on NFS") != std::string::npos);
  CHECK(choose_state_home(facts_of(std::nullopt, "/")).path == usual.path);  // nothing is better
  FolderFacts of_nobody = facts_of(std::nullopt);
  of_nobody.home = "/";
  of_nobody.writable = [](const std::string& path) {
    return path.find("/.local") == std::string::npos;
  };
  CHECK(choose_state_home(of_nobody).path == "/var/tmp/dtlaunch-1000");
  CHECK(choose_state_home(of_nobody).notice.find("/ is not to be written") != std::string::npos);
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

TEST_CASE("master folders: a relative path is refused", "[master_folders]") {
  for (const char* variable : {"XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME"}) {
    const auto made = make_job_folder({"no/such/dtlaunch", "", variable}, "job");
    REQUIRE_FALSE(made);
    CHECK(made.error().message.find("no/such/dtlaunch is no absolute path") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists("no"));
  }
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
