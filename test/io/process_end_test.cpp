#include "io/process_end.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "io/asio.h"
#include "io/fd.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "io/task_group.h"
#include "test/support/catch.h"

using namespace dt;
using Descriptor = io::asio::posix::stream_descriptor;

namespace {

struct Watched {
  explicit Watched(io::asio::io_context& context)
      : first(context), second(context), pidfd(context) {}
  Descriptor first;
  Descriptor second;
  Descriptor pidfd;
  pid_t pid = -1;
  bool asio_says_ended = false;
  bool ended = false;
};

/// Ends when both pipes are readable, in one turn of the loop, and closes the second one while its
/// event waits in the queue: Asio gives that event to the descriptor registered next.
io::awaitable<void> wake_for_nothing(Watched& all) {
  co_await all.first.async_wait(Descriptor::wait_read, io::tok);
  all.second.close();
  all.pidfd.assign(io::open_pidfd(all.pid).release());
}

io::awaitable<void> wait_by_asio(Watched& all) {
  co_await wake_for_nothing(all);
  co_await all.pidfd.async_wait(Descriptor::wait_read, io::tok);
  all.asio_says_ended = true;
}

io::awaitable<void> wait_for_end(Watched& all) {
  co_await wake_for_nothing(all);
  all.ended = co_await io::process_ended(all.pidfd);
}

io::awaitable<void> wait_for_second(Watched& all) {
  co_await all.second.async_wait(Descriptor::wait_read, io::tok);
}

}  // namespace

TEST_CASE("process end: a child's exit code, and a wait that is given up", "[io]") {
  io::asio::io_context context(1);
  auto quick = io::Subprocess::start({"sh", "-c", "exit 3"}, {0, 1, 2});
  auto slow = io::Subprocess::start({"sleep", "1000"}, {0, 1, 2});
  REQUIRE((quick && slow));
  std::optional<Result<ExitStatus>> end;
  std::optional<Result<ExitStatus>> given_up;
  auto wait = [](io::Subprocess& child, auto& into) -> io::awaitable<void> {
    into = co_await io::end_of(child);
  };
  io::TaskGroup first(context.get_executor());
  io::TaskGroup second(context.get_executor());
  second.spawn(wait(*slow, given_up));
  first.spawn(wait(*quick, end));
  while (!first.idle()) context.run_one();
  second.cancel();
  context.run();
  REQUIRE((end && *end));
  CHECK((*end)->shell_code() == 3);
  REQUIRE((given_up && !*given_up));
  CHECK(given_up->error().kind == ErrorKind::kClosed);
}

TEST_CASE("process end: an event of another descriptor is not the end of a process", "[io]") {
  const bool by_asio = GENERATE(true, false);
  io::asio::io_context context(1);
  Watched all(context);
  auto first = io::make_pipe();
  auto second = io::make_pipe();
  const auto pid = io::spawn("sleep", {"sleep", "1000"}, {}, io::ProcessGroup::kOurs);
  REQUIRE((first && second && pid));
  all.pid = *pid;
  all.first.assign(first->read.release());
  all.second.assign(second->read.release());

  io::TaskGroup tasks(context.get_executor());
  tasks.spawn(by_asio ? wait_by_asio(all) : wait_for_end(all));
  tasks.spawn(wait_for_second(all));
  context.poll();
  REQUIRE(::write(first->write.get(), "x", 1) == 1);
  REQUIRE(::write(second->write.get(), "x", 1) == 1);
  context.restart();
  context.poll();
  CHECK_FALSE(all.ended);
  // Without this the test would show nothing: then Asio no longer needs the loop.
  if (by_asio) CHECK(all.asio_says_ended);

  ::kill(*pid, SIGKILL);
  context.restart();
  context.run();
  CHECK((by_asio || all.ended));
  CHECK(::waitpid(*pid, nullptr, 0) == *pid);
}
