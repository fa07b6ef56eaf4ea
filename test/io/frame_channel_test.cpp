#include "io/frame_channel.h"

#include <boost/asio/local/connect_pair.hpp>

#include "core/protocol/control_messages.h"
#include "io/task_group.h"
#include "io/within.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;

namespace {

struct Pair {
  io::asio::io_context context{1};
  io::UnixSocket a{context};
  io::UnixSocket b{context};
  Pair() { io::asio::local::connect_pair(a, b); }
};

}  // namespace

TEST_CASE("frame channel: messages arrive in order, the end is an orderly close",
          "[frame_channel]") {
  Pair pair;
  io::FrameChannel left(pair.context.get_executor(), io::unix_stream(std::move(pair.a)));
  io::FrameChannel right(pair.context.get_executor(), io::unix_stream(std::move(pair.b)));
  io::TaskGroup group(pair.context.get_executor());
  std::vector<std::uint64_t> seen;
  std::optional<Error> end;
  auto read_all = [&]() -> io::awaitable<void> {
    for (;;) {
      auto frame = co_await right.receive();
      if (!frame) {
        end = frame.error();
        break;
      }
      seen.push_back(wire::parse<Beat>(frame->body)->count);
    }
    right.close();
  };
  auto send_all = [&]() -> io::awaitable<void> {
    for (std::uint64_t i = 0; i < 1000; ++i) left.send(Beat{i});
    co_await left.flush();
    left.close();
  };
  group.spawn(left.write_loop());
  group.spawn(read_all());
  group.spawn(send_all());
  pair.context.run_for(10s);
  REQUIRE(group.idle());
  REQUIRE(seen.size() == 1000);
  CHECK(seen.back() == 999);
  REQUIRE(end);
  CHECK(end->kind == ErrorKind::kClosed);
}

TEST_CASE("frame channel: a reader that never reads costs bounded memory", "[frame_channel]") {
  Pair pair;
  io::FrameChannel left(pair.context.get_executor(), io::unix_stream(std::move(pair.a)), 1000);
  int sent = 0;
  while (sent < 1000 && left.send(Beat{1})) ++sent;
  CHECK(sent < 1000);
  CHECK_FALSE(left.is_open());
}

TEST_CASE("within: a wait that never ends is a timeout that names it", "[within]") {
  Pair pair;
  io::FrameChannel left(pair.context.get_executor(), io::unix_stream(std::move(pair.a)));
  std::optional<Result<wire::Frame>> got;
  io::TaskGroup group(pair.context.get_executor());
  auto wait = [&]() -> io::awaitable<void> {
    auto result = co_await io::within(20ms, left.receive(), "waiting for a beat");
    got.emplace(std::move(result));
  };
  group.spawn(wait());
  pair.context.run_for(10s);
  REQUIRE(group.idle());
  REQUIRE(got);
  REQUIRE_FALSE(*got);
  CHECK(got->error().kind == ErrorKind::kTimeout);
  CHECK(got->error().message.find("waiting for a beat") == 0);
}
