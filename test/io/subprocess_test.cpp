#include "io/subprocess.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "io/fd.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

std::string read_all(io::Fd fd) {
  std::string out;
  std::array<char, 512> part{};
  for (ssize_t n = 0; (n = ::read(fd.get(), part.data(), part.size())) > 0;)
    out.append(part.data(), static_cast<std::size_t>(n));
  return out;
}

ExitStatus reaped(pid_t pid) {
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return io::exit_status(status);
}

struct Ran {
  std::string out;
  ExitStatus status;
};

/// The output of the shell's `script` on descriptor 1, and its exit status.
Ran run(const std::string& script, io::ProcessGroup group = io::ProcessGroup::kOurs) {
  auto pipe = io::make_pipe();
  REQUIRE(pipe);
  const auto pid = io::spawn("sh", {"sh", "-c", script},
                             {STDIN_FILENO, pipe->write.get(), STDERR_FILENO}, group);
  REQUIRE(pid);
  pipe->write.reset();
  Ran ran;
  ran.out = read_all(std::move(pipe->read));
  ran.status = reaped(*pid);
  return ran;
}

}  // namespace

TEST_CASE("spawn: the program has the descriptors given, in their places, and no others",
          "[spawn]") {
  const io::Fd inherited(::fcntl(STDERR_FILENO, F_DUPFD, 50));  // not close-on-exec
  CHECK(run("test -e /proc/$$/fd/1 && ! test -e /proc/$$/fd/50 && echo closed").out == "closed\n");

  auto third = io::make_pipe();
  REQUIRE(third);
  const auto pid = io::spawn("/bin/sh", {"sh", "-c", "echo three >&3"},
                             {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, third->write.get()},
                             io::ProcessGroup::kOurs);
  REQUIRE(pid);
  third->write.reset();
  CHECK(read_all(std::move(third->read)) == "three\n");
  CHECK(reaped(*pid).clean());
}

TEST_CASE("spawn: no dup2 overwrites a descriptor that is still wanted", "[spawn]") {
  auto in = io::make_pipe();
  auto out = io::make_pipe();
  REQUIRE((in && out));
  const int saved_in = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 10);
  const int saved_out = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
  // Here the program writes to 0 and reads from 1.
  REQUIRE(::dup2(out->write.get(), STDIN_FILENO) == STDIN_FILENO);
  REQUIRE(::dup2(in->read.get(), STDOUT_FILENO) == STDOUT_FILENO);
  const auto pid = io::spawn("cat", {"cat"}, {STDOUT_FILENO, STDIN_FILENO, STDERR_FILENO},
                             io::ProcessGroup::kOurs);
  ::dup2(saved_in, STDIN_FILENO);
  ::dup2(saved_out, STDOUT_FILENO);
  ::close(saved_in);
  ::close(saved_out);
  REQUIRE(pid);
  out->write.reset();
  REQUIRE(::write(in->write.get(), "through", 7) == 7);
  in->write.reset();
  CHECK(read_all(std::move(out->read)) == "through");
  CHECK(reaped(*pid).clean());
}

TEST_CASE("spawn: signals are as at the start of a program", "[spawn]") {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  sigset_t blocked;
  sigset_t old;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &old);
  const Ran piped = run("kill -PIPE $$; echo lives");
  const Ran ended = run("kill -TERM $$; echo lives");
  ::sigprocmask(SIG_SETMASK, &old, nullptr);
  ::signal(SIGPIPE, before);
  CHECK(piped.status == ExitStatus{0, SIGPIPE});
  CHECK(ended.status == ExitStatus{0, SIGTERM});
  CHECK((piped.out + ended.out).empty());
}

TEST_CASE("spawn: a group or session of its own where it is asked for", "[spawn]") {
  const std::string ids =
      "read -r _ _ _ _ group session _ < /proc/self/stat; "
      "echo $((group == $$)) $((session == $$))";
  CHECK(run(ids, io::ProcessGroup::kOurs).out == "0 0\n");
  CHECK(run(ids, io::ProcessGroup::kOwn).out == "1 0\n");
  CHECK(run(ids, io::ProcessGroup::kOwnSession).out == "1 1\n");
}

TEST_CASE("spawn: an exit code comes back, and a program that is not there is named", "[spawn]") {
  CHECK(run("exit 3").status == ExitStatus{3, 0});
  const auto none = io::spawn("/no/such/program", {"program"}, {}, io::ProcessGroup::kOurs);
  REQUIRE_FALSE(none);
  CHECK(none.error().message == "start /no/such/program: No such file or directory");
}

TEST_CASE("a subprocess is killed with its group when its owner goes", "[spawn]") {
  auto pipe = io::make_pipe();
  REQUIRE(pipe);
  {
    auto process = io::Subprocess::start({"sh", "-c", "sleep 1000 & sleep 1000"},
                                         {STDIN_FILENO, pipe->write.get(), STDERR_FILENO});
    REQUIRE(process);
    pipe->write.reset();
  }
  CHECK(read_all(std::move(pipe->read)).empty());  // ends with the last writer
}
