#include "io/thread_pool.h"

#include <poll.h>

#include <latch>

#include "io/task_group.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

/// Waits for work on the pool twice, as a caller that sees to its own end when it is cancelled.
io::awaitable<void> caller(io::ThreadPool& threads, std::latch& go, int& finished) {
  co_await io::asio::this_coro::throw_if_cancelled(false);
  std::function<int()> first = [&go] {
    go.wait();
    return 1;
  };
  co_await threads.finish(std::move(first));
  ++finished;
  std::function<int()> second = [] { return 2; };
  co_await threads.finish(std::move(second));
  ++finished;
}

io::awaitable<void> slow_caller(io::ThreadPool& threads, std::chrono::milliseconds takes,
                                Duration limit, int& in_time, int& late) {
  std::function<Result<int>()> work = [takes] {
    ::poll(nullptr, 0, static_cast<int>(takes.count()));
    return 1;
  };
  auto done = co_await threads.finish_within(limit, std::move(work), "slow");
  ++(done ? in_time : late);
}

}  // namespace

TEST_CASE("thread pool: a deadline begins with the work, not with its wait for a thread", "[io]") {
  using namespace std::chrono_literals;
  io::asio::io_context context;
  io::ThreadPool threads(1);
  io::TaskGroup group(context.get_executor());
  int in_time = 0;
  int late = 0;
  for (int i = 0; i < 8; ++i) group.spawn(slow_caller(threads, 50ms, 300ms, in_time, late));
  group.spawn(slow_caller(threads, 600ms, 100ms, in_time, late));
  while (!group.idle()) context.run_one();
  CHECK(in_time == 8);
  CHECK(late == 1);
}

TEST_CASE("thread pool: who does not throw when cancelled does not afterwards", "[io]") {
  io::asio::io_context context;
  io::ThreadPool threads(1);
  io::TaskGroup group(context.get_executor());
  std::latch go(1);
  int finished = 0;
  group.spawn(caller(threads, go, finished));
  context.poll();
  group.cancel();
  context.poll();
  CHECK(finished == 0);  // the work may use the caller's objects
  go.count_down();
  context.restart();
  while (!group.idle()) context.run_one();
  CHECK(finished == 2);
}
