#include "io/semaphore.h"

#include "io/task_group.h"
#include "test/support/catch.h"

using namespace dt;

namespace {

using Order = std::vector<int>;

/// Takes a permit, notes who did, and keeps it until `go` is cancelled.
io::awaitable<void> take(std::shared_ptr<io::Semaphore> semaphore, Order& order, int who,
                         io::asio::steady_timer& go) {
  const io::Semaphore::Permit permit = co_await semaphore->acquire();
  order.push_back(who);
  co_await go.async_wait(io::tok);
}

}  // namespace

TEST_CASE("semaphore: first come, first served, and who is cancelled takes nothing", "[io]") {
  io::asio::io_context context;
  const auto executor = context.get_executor();
  const auto semaphore = std::make_shared<io::Semaphore>(executor, 2);
  io::asio::steady_timer go(context, io::asio::steady_timer::time_point::max());
  io::TaskGroup group(executor);
  io::TaskGroup leaving(executor);
  const auto run = [&context] {
    context.restart();
    context.poll();
  };
  Order order;
  group.spawn(take(semaphore, order, 1, go));
  run();
  CHECK_FALSE(semaphore->all_taken());
  group.spawn(take(semaphore, order, 2, go));
  leaving.spawn(take(semaphore, order, 3, go));
  group.spawn(take(semaphore, order, 4, go));
  group.spawn(take(semaphore, order, 5, go));
  run();
  CHECK(order == Order{1, 2});
  CHECK(semaphore->all_taken());
  leaving.cancel();
  run();
  CHECK(leaving.idle());
  go.cancel();
  run();
  CHECK(order == Order{1, 2, 4, 5});
  CHECK(semaphore->all_taken());
  go.cancel();
  run();
  CHECK(group.idle());
  CHECK_FALSE(semaphore->all_taken());
  group.spawn(take(semaphore, order, 6, go));
  group.spawn(take(semaphore, order, 7, go));
  run();
  CHECK(order == Order{1, 2, 4, 5, 6, 7});
  group.cancel();
  run();
  CHECK(group.idle());
}
