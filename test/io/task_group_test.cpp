#include "io/task_group.h"

#include <stdexcept>

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

io::awaitable<void> wait_on(io::asio::steady_timer& timer) { co_await timer.async_wait(io::tok); }

io::awaitable<void> join(io::TaskGroup& group, bool& joined) {
  co_await group.join();
  joined = true;
}

io::awaitable<void> wait_long(bool* started) {
  *started = true;
  co_await io::sleep_for(1h);
}

io::awaitable<void> fail_at_once() {
  throw std::runtime_error("broken");
  co_return;
}

}  // namespace

TEST_CASE("task group: a task that ends before a cancel from outside the loop reaches it is safe",
          "[io]") {
  io::asio::io_context context;
  io::TaskGroup group(context.get_executor());
  io::asio::steady_timer timer(context, 1h);
  group.spawn(wait_on(timer));
  context.poll();
  timer.cancel();  // its end is queued first,
  group.cancel();  // then the cancellation of the ended task
  context.restart();
  context.poll();
  CHECK(group.idle());
}

TEST_CASE("task group: cancel ends what waits for ever, join waits for it", "[io]") {
  io::asio::io_context context;
  io::TaskGroup group(context.get_executor());
  io::asio::steady_timer timer(context, io::asio::steady_timer::time_point::max());
  for (int i = 0; i < 3; ++i) group.spawn(wait_on(timer));
  bool joined = false;
  io::TaskGroup waiting(context.get_executor());
  waiting.spawn(join(group, joined));
  context.poll();
  CHECK_FALSE(joined);
  group.cancel();
  context.restart();
  context.poll();
  CHECK(joined);
}

TEST_CASE("task group: a task cancelled before its first step leaves the group", "[task_group]") {
  io::asio::io_context context(1);
  io::TaskGroup group(context.get_executor());
  bool started = false;
  group.spawn(wait_long(&started));
  group.cancel();
  context.run_for(10s);
  CHECK(group.idle());
  CHECK_FALSE(started);
}

TEST_CASE("task group: a task that never waits may cancel its own group", "[task_group]") {
  io::asio::io_context context(1);
  io::TaskGroup group(context.get_executor());
  bool started = false;
  group.spawn(wait_long(&started));
  auto cancel_all = [&group]() -> io::awaitable<void> {
    group.cancel();
    co_return;
  };
  group.spawn(cancel_all());
  context.run_for(10s);
  CHECK(group.idle());
  CHECK(started);
}

TEST_CASE("task group: the first exception stops the others and comes out of join",
          "[task_group]") {
  io::asio::io_context context(1);
  io::TaskGroup group(context.get_executor());
  bool started = false;
  std::string thrown;
  group.spawn(wait_long(&started));
  group.spawn(fail_at_once());
  auto catch_join = [&]() -> io::awaitable<void> {
    try {
      co_await group.join();
    } catch (const std::runtime_error& e) {
      thrown = e.what();
    }
  };
  io::TaskGroup outer(context.get_executor());
  outer.spawn(catch_join());
  context.run_for(10s);
  CHECK(group.idle());
  CHECK(outer.idle());
  CHECK(thrown == "broken");
}
