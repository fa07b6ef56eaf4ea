#include "supervisor/dtctl/job_standing.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>

#include "io/job/lock_holder.h"
#include "io/job/spec.h"
#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace dt::supervisor;
namespace fs = std::filesystem;

namespace {

constexpr const char* kJob = "20261120-223000-1a2b3c4d";

/// A job that was started here and of which nothing lives.
struct Left {
  Left() {
    ::setenv("XDG_STATE_HOME", (home.path() + "/state").c_str(), 1);
    io::JobSpec spec;
    spec.job = kJob;
    spec.job_dir = home.path() + "/folder";
    spec.state_dir = io::default_state_dir(kJob);
    spec.socket = home.path() + "/control";
    spec.command = {"true"};
    spec.workers = {{"", "localhost"}};
    state = spec.state_dir;
    fs::create_directories(state);
    fs::create_directories(io::marker_dir(spec.job_dir));
    lock = io::marker_dir(spec.job_dir) + "/lock";
    write(state + "/spec.json", io::to_json(spec));
    write(state + "/journal", "");
    write(lock, to_json(io::this_process(kJob)));
  }
  ~Left() { ::unsetenv("XDG_STATE_HOME"); }
  static void write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text;
  }
  static Standing standing() { return look_at_job(kJob).standing; }

  TempDir home;
  std::string state;
  std::string lock;
};

io::Fd locked(const std::string& path, int how) {
  io::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(file.get(), how | LOCK_NB) == 0);
  return file;
}

}  // namespace

TEST_CASE("job standing: a job of which nobody lives is left, and cannot be resumed meanwhile",
          "[job_standing]") {
  const Left left;
  const JobHere job = look_at_job(kJob);
  CHECK(job.standing == Standing::kLeft);
  for (const char* name : {"/spec.json", "/journal"}) {
    const io::Fd file(::open((left.state + name).c_str(), O_RDWR | O_CLOEXEC));
    CHECK(::flock(file.get(), LOCK_EX | LOCK_NB) != 0);
  }
}

TEST_CASE("job standing: a job runs while dtlaunch or a supervisor lives", "[job_standing]") {
  const Left left;
  {
    const io::Fd dtlaunch = locked(left.state + "/spec.json", LOCK_SH);
    CHECK(Left::standing() == Standing::kRuns);
  }
  {
    const io::Fd supervisor = locked(left.state + "/journal", LOCK_EX);
    CHECK(Left::standing() == Standing::kRuns);
  }
  CHECK(Left::standing() == Standing::kLeft);
}

TEST_CASE("job standing: what another machine may have is not known", "[job_standing]") {
  const Left left;
  io::LockHolder far = io::this_process(kJob);
  far.host = "far";
  far.boot_id = "another boot";
  Left::write(left.lock, to_json(far));
  CHECK(Left::standing() == Standing::kUnknown);
  Left::write(left.lock, "{");
  CHECK(Left::standing() == Standing::kUnknown);
  far.job = "20261120-223000-00000000";  // a later job of the folder
  Left::write(left.lock, to_json(far));
  CHECK(Left::standing() == Standing::kLeft);
  fs::remove(left.lock);
  CHECK(Left::standing() == Standing::kLeft);
  fs::remove_all(left.state);
  CHECK(Left::standing() == Standing::kUnknown);
}
