#include "io/task_group.h"

#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

io::awaitable<void> wait_on(io::asio::steady_timer& timer) { co_await timer.async_wait(io::tok); }

io::awaitable<void> join(io::TaskGroup& group, bool& joined) {
  co_await group.join();
  joined = true;
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
