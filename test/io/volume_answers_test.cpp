#include "io/volume_answers.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "io/fd.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

/// Children of this process, also those that have ended and were not waited for.
std::size_t children() {
  std::ifstream file("/proc/thread-self/children");
  return static_cast<std::size_t>(std::distance(std::istream_iterator<pid_t>(file), {}));
}

/// A file on a volume that stalls: others wait to open it while this lives.
class Stalled {
 public:
  Stalled() {
    REQUIRE(file_);
    std::signal(SIGIO, SIG_IGN);  // the kernel's word that somebody waits
    stalls();
  }
  ~Stalled() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }
  void stalls() { REQUIRE(::fcntl(file_.get(), F_SETLEASE, F_WRLCK) == 0); }
  void answers() { REQUIRE(::fcntl(file_.get(), F_SETLEASE, F_UNLCK) == 0); }

 private:
  std::string path_ = "/tmp/dt_volume_answers_XXXXXX";
  io::Fd file_{::mkstemp(path_.data())};
};

}  // namespace

TEST_CASE("volume answers: one process at most hangs, however often is asked", "[volume_answers]") {
  Stalled file;
  io::VolumeQuestion question(file.path(), "the folder");
  for (int i = 0; i < 3; ++i) {
    const auto answer = question.answers(20ms);
    REQUIRE(!answer);
    CHECK(answer.error().kind == ErrorKind::kTimeout);
    CHECK(answer.error().message ==
          "the folder: the volume has not answered for 0 s on this machine: is its server there?");
    CHECK(children() == 1);
  }
  file.answers();
  CHECK(question.answers(10s));
  CHECK(children() == 0);
  CHECK(question.answers(10s));
}

TEST_CASE("volume answers: an answer to an earlier question says nothing of now",
          "[volume_answers]") {
  Stalled file;
  io::VolumeQuestion question(file.path(), "the folder");
  CHECK(!question.answers(20ms));
  file.answers();
  siginfo_t ended{};
  REQUIRE(::waitid(P_ALL, 0, &ended, WEXITED | WNOWAIT) == 0);
  file.stalls();
  CHECK(!question.answers(20ms));
}

TEST_CASE("volume answers: a path that is not there, and a folder", "[volume_answers]") {
  CHECK(io::volume_answers("/tmp/dt-not-there", "it"));
  CHECK(io::volume_answers("/tmp", "it"));
}
