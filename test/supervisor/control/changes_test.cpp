#include "supervisor/control/changes.h"

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using supervisor::Changes;

TEST_CASE("changes: who knows less than the newest is answered at once", "[changes]") {
  Loop loop;
  Changes changes(loop.context.get_executor());
  const auto first = loop.wait(changes.after(0, 600s));
  changes.note();
  changes.note();
  CHECK(loop.wait(changes.after(first, 600s)) == first + 2);
}

TEST_CASE("changes: everybody who waits is woken by the next one", "[changes]") {
  Loop loop;
  Changes changes(loop.context.get_executor());
  const auto now = loop.wait(changes.after(0, 600s));
  int woken = 0;
  auto waits = [&]() -> io::awaitable<void> {
    const auto number = co_await changes.after(now, 600s);
    CHECK(number == now + 1);
    ++woken;
  };
  loop.group.spawn(waits());
  loop.group.spawn(waits());
  CHECK_FALSE(loop.until([&] { return woken > 0; }, 30ms));
  changes.note();
  REQUIRE(loop.until([&] { return woken == 2; }));
  CHECK(loop.finished());
}

TEST_CASE("changes: nothing changes: the answer comes when its time is up", "[changes]") {
  Loop loop;
  Changes changes(loop.context.get_executor());
  const auto now = loop.wait(changes.after(0, 600s));
  CHECK(loop.wait(changes.after(now, 5ms)) == now);
}
