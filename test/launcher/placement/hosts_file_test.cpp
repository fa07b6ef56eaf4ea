#include "launcher/placement/hosts_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <future>

#include "core/files/hosts.h"
#include "io/fd.h"
#include "test/support/catch.h"

using namespace dt;

TEST_CASE("hosts file: words of a command line become lines of the hosts grammar", "[hosts]") {
  CHECK(launcher::lines_of_words("a") == "a\n");
  CHECK(launcher::lines_of_words("a,b[1,3-4],me@c:22") == "a\nb[1,3-4]\nme@c:22\n");
  const auto lines = parse_hosts(launcher::lines_of_words("a,b[1,3-4],[::1]:22"), "-w");
  REQUIRE(lines);
  CHECK(lines->size() == 5);
  CHECK_FALSE(parse_hosts(launcher::lines_of_words("a,b[1,3"), "-w"));
}

TEST_CASE("hosts file: one that names no host is refused by its name", "[hosts]") {
  char path[] = "/tmp/dt-hosts-XXXXXX";
  const io::Fd file(::mkstemp(path));
  REQUIRE(::write(file.get(), "# none\n", 7) == 7);
  const auto lines = launcher::read_hosts_file(path);
  ::unlink(path);
  REQUIRE_FALSE(lines);
  CHECK(lines.error().message ==
        std::string(path) + " names no host: one line per host was expected");
}

TEST_CASE("hosts file: a named pipe is opened by one reader, which gets all", "[hosts]") {
  char folder[] = "/tmp/dt-hosts-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string pipe = std::string(folder) + "/hosts";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  ::signal(SIGPIPE, SIG_IGN);
  auto written = std::async(std::launch::async, [&pipe] {
    const io::Fd file(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC));
    return ::write(file.get(), "a\nb\n", 4);
  });
  ::usleep(20'000);  // tidy: allow (so that the writer waits for a reader)
  const auto lines = launcher::read_hosts_file(pipe);
  CHECK(written.get() == 4);
  REQUIRE(lines);
  CHECK(lines->size() == 2);
  ::unlink(pipe.c_str());
  ::rmdir(folder);
}
