#include "launcher/prune.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

#include "io/fd.h"
#include "io/job/spec.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// A job's folder with some files, last changed `days` ago.
struct Jobs {
  test::TempDir dir;

  void age(const std::string& path, int days) const {
    timespec then{};
    ::clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec -= days * 86400L;
    const timespec times[] = {then, then};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
  }
  std::string make(const std::string& name, int days,
                   std::chrono::seconds orphan_timeout = std::chrono::minutes(5)) const {
    const std::string folder = dir / name;
    fs::create_directory(folder);
    io::JobSpec spec;
    spec.rules.orphan_timeout = orphan_timeout;
    test::write_file(folder + "/spec.json", to_json(spec));
    test::write_file(folder + "/journal", "records");
    for (const char* file : {"/spec.json", "/journal", ""}) age(folder + file, days);
    return folder;
  }
  void prune() const { prune_jobs(dir.path(), std::chrono::system_clock::now()); }
};

}  // namespace

TEST_CASE("prune: what a job left goes a week after its end, and nothing else does", "[prune]") {
  const Jobs jobs;
  const std::string old = jobs.make("20261101-120000-0123abcd", 8);
  const std::string young = jobs.make("20261101-120001-0123abcd", 6);
  const std::string logging = jobs.make("20261101-120002-0123abcd", 8);
  test::write_file(logging + "/supervisor.log", "a word of today");
  jobs.age(logging, 8);
  const std::string patient =
      jobs.make("20261101-120003-0123abcd", 20, std::chrono::hours(14 * 24));
  const std::string patient_too =
      jobs.make("20261101-120004-0123abcd", 22, std::chrono::hours(14 * 24));
  const std::string other = jobs.make("my own folder", 800);
  const std::string elsewhere = jobs.make("elsewhere", 800);
  const std::string link = jobs.dir / "20261101-120005-0123abcd";
  fs::create_directory_symlink(elsewhere, link);
  jobs.age(link, 800);
  jobs.prune();
  CHECK_FALSE(fs::exists(old));
  CHECK(fs::exists(young + "/journal"));
  CHECK(fs::exists(logging + "/journal"));
  CHECK(fs::exists(patient + "/journal"));
  CHECK_FALSE(fs::exists(patient_too));
  CHECK(fs::exists(other + "/journal"));
  CHECK(fs::exists(elsewhere + "/journal"));
  CHECK(fs::is_symlink(link));
}

TEST_CASE("prune: a job that lives stays, however long it has said nothing", "[prune]") {
  const Jobs jobs;
  const std::string locked = jobs.make("20250101-120000-0123abcd", 300);
  const std::string served = jobs.make("20250101-120001-0123abcd", 300);
  io::Fd journal(::open((locked + "/journal").c_str(), O_RDWR | O_CLOEXEC));
  REQUIRE(::flock(journal.get(), LOCK_EX | LOCK_NB) == 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = served + "/control";
  std::memcpy(address.sun_path, path.data(), path.size());
  io::Fd control(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::bind(control.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(control.get(), 1) == 0);
  for (const std::string& one : {path, served}) jobs.age(one, 300);
  jobs.prune();
  CHECK(fs::exists(locked + "/spec.json"));
  CHECK(fs::exists(served + "/spec.json"));
  journal.reset();
  control.reset();
  jobs.prune();
  CHECK(fs::is_empty(jobs.dir.path()));
}

TEST_CASE("prune: a folder that is not there is no error", "[prune]") {
  const Jobs jobs;
  prune_jobs(jobs.dir / "no such folder", std::chrono::system_clock::now());
  CHECK(fs::is_empty(jobs.dir.path()));
}
