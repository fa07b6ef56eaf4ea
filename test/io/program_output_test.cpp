#include "io/program_output.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>

#include "io/asio.h"
#include "io/last_words.h"
#include "io/task_group.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using io::ProgramCall;
using io::ProgramOutput;

namespace {

Result<ProgramOutput> awaited(ProgramCall call) {
  io::asio::io_context context(1);
  std::optional<Result<ProgramOutput>> output;
  auto keep = [&output](ProgramCall what) -> io::awaitable<void> {
    output = co_await io::awaited_output(std::move(what));
  };
  io::TaskGroup tasks(context.get_executor());
  tasks.spawn(keep(std::move(call)));
  context.run();
  REQUIRE(output);
  return std::move(*output);
}

/// "exit code 0, out: abc, words: why", or the error. Both forms must say the same.
std::string said_by(const ProgramCall& call) {
  const auto said = [](const Result<ProgramOutput>& output) {
    if (!output) return output.error().message;
    return fmt::format("{}, out: {}, words: {}", to_string(output->status), output->out,
                       io::last_line(output->words));
  };
  const std::string here = said(io::program_output(call));
  CHECK(said(awaited(call)) == here);
  return here;
}

/// A lock that is shared by a script and what it starts, for as long as any of them lives.
std::string lock_file() {
  static const int kFile = ::memfd_create("lock", MFD_CLOEXEC);
  return fmt::format("/proc/{}/fd/{}", ::getpid(), kFile);
}
ProgramCall shell(const std::string& script, Duration deadline = 60s) {
  const std::string text = fmt::format("exec 9>{}; flock -s 9; {}", lock_file(), script);
  return {.argv = {"sh", "-c", text}, .most = 1 << 20, .deadline = deadline};
}
bool nobody_is_left() {
  const auto locked =
      io::program_output({.argv = {"flock", "-w", "20", lock_file(), "true"}, .deadline = 30s});
  return locked && locked->status.clean();
}

}  // namespace

TEST_CASE("program output: an answer, an exit code, a signal, and words that are printable",
          "[program]") {
  CHECK(said_by(shell("echo a; echo b >&2; echo c >&2")) == "exit code 0, out: a\n, words: c");
  CHECK(
      said_by(shell("printf '\\033[31mred\\033[0m \\033]0;title\\007 \\233\\n\\n' >&2; exit 3")) ==
      "exit code 3, out: , words: red \\x1b]0;title\\x07 \\x9b");
  CHECK(said_by(shell("echo a; kill -9 $$")) == "killed by signal 9 (KILL), out: a\n, words: ");
  ProgramCall call = shell("cat");
  call.input = std::string(200'000, 'x');
  CHECK(said_by(call) == "exit code 0, out: " + call.input + ", words: ");
  CHECK(said_by({.argv = {"no-such-program"}}) ==
        "no-such-program is not installed here, or not in PATH");
  CHECK(nobody_is_left());
}

TEST_CASE("program output: one that goes on is killed at its deadline, or when it is too much",
          "[program]") {
  const auto begun = std::chrono::steady_clock::now();
  CHECK(said_by(shell("echo a; sleep 1000", 1s)) == "sh: nothing within 1.0 s");
  CHECK(said_by(shell("exec >&- 2>&-; sleep 1000", 1s)) == "sh: nothing within 1.0 s");
  CHECK(said_by(shell("yes >&2", 1s)) == "sh: nothing within 1.0 s");
  CHECK(said_by(shell("trap '' TERM HUP; yes")) == "sh prints without end");
  CHECK(nobody_is_left());
  CHECK(std::chrono::steady_clock::now() - begun < 50s);
}

TEST_CASE("program output: the program's end is the answer, whoever holds its pipe", "[program]") {
  ProgramCall call = shell("echo a; exec >&- 2>&-; sleep 0.1; exit 4");
  CHECK(said_by(call) == "exit code 4, out: a\n, words: ");
  ProgramCall with_child = shell("sleep 1000 & echo a; echo b >&2");
  CHECK(said_by(with_child) == "exit code 0, out: a\n, words: b");
  CHECK(nobody_is_left());
  // A probe of ssh's Match exec may start what stays.
  const auto stays = io::program_output(shell("sleep 1000 >/dev/null & echo $!"));
  REQUIRE(stays);
  CHECK(::kill(std::stoi(stays->out), SIGKILL) == 0);
  CHECK(nobody_is_left());
}

TEST_CASE(
    "program output: enough output is the answer, and a wait that is cancelled ends the program",
    "[program]") {
  ProgramCall call = shell("echo enough; sleep 1000");
  call.is_enough = [](const std::string& out) { return out.ends_with("enough\n"); };
  CHECK(said_by(call) == "exit code 0, out: enough\n, words: ");
  CHECK(nobody_is_left());

  call.is_enough = nullptr;
  io::asio::io_context context(1);
  Result<ProgramOutput> output;
  auto keep = [&output](ProgramCall what) -> io::awaitable<void> {
    output = co_await io::awaited_output(std::move(what));
  };
  io::TaskGroup tasks(context.get_executor());
  tasks.spawn(keep(call));
  context.run_for(500ms);
  tasks.cancel();
  context.run();
  CHECK((!output && output.error().kind == ErrorKind::kClosed));
  CHECK(nobody_is_left());
}

TEST_CASE("program output: variables that are not for it do not reach it", "[program]") {
  ::setenv("DT_TEST_SQUEUE_SORT", "x", 1);
  ::setenv("DT_TEST_OTHER", "y", 1);
  ProgramCall call = shell("echo $DT_TEST_SQUEUE_SORT-$DT_TEST_OTHER");
  call.is_without = [](std::string_view name) { return name.starts_with("DT_TEST_SQUEUE_"); };
  CHECK(said_by(call) == "exit code 0, out: -y\n, words: ");
}
