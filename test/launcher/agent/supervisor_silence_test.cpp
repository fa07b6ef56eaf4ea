#include <boost/asio/local/connect_pair.hpp>

#include "io/asio.h"
#include "launcher/agent/supervisor_link.h"
#include "test/support/catch.h"

using namespace dt;
using namespace std::chrono_literals;
using launcher::Channel;
using launcher::SupervisorLink;

namespace {

struct Supervisor {
  Supervisor() {
    io::UnixSocket ours(context);
    io::asio::local::connect_pair(ours, theirs);
    channel = std::make_shared<io::FrameChannel>(context.get_executor(),
                                                 io::unix_stream(std::move(ours)));
    hello.term = Term(3);
    hello.orphan_timeout_ms = 2000;
  }
  io::asio::io_context context;
  io::UnixSocket theirs{context};
  Channel channel;
  AgentHello hello;
};

const Time kStart = Time() + 1h;

}  // namespace

TEST_CASE("supervisor link: before the first supervisor the lonely timeout counts", "[launcher]") {
  SupervisorLink link(60s, kStart);
  CHECK_FALSE(link.expired_timeout(kStart + 59s));
  CHECK(link.expired_timeout(kStart + 60s) == Duration(60s));
}

TEST_CASE("supervisor link: after it the supervisor's orphan timeout counts", "[launcher]") {
  Supervisor supervisor;
  SupervisorLink link(60s, kStart);
  link.attach(supervisor.channel, supervisor.hello, kStart);
  CHECK(link.term() == Term(3));
  CHECK_FALSE(link.expired_timeout(kStart + 1h));
  link.detach(supervisor.channel, kStart + 1h);
  CHECK_FALSE(link.expired_timeout(kStart + 1h + 1s));
  CHECK(link.expired_timeout(kStart + 1h + 2s) == Duration(2s));
}

TEST_CASE("supervisor link: silence ends the link of one that repeats its hello", "[launcher]") {
  Supervisor supervisor;
  SupervisorLink link(60s, kStart);
  link.attach(supervisor.channel, supervisor.hello, kStart);
  link.on_hello_again();
  link.on_message(kStart + 5s);
  CHECK_FALSE(link.expired_timeout(kStart + 7s));
  CHECK(link.is_attached());
  // It counts as alone since the last message.
  CHECK(link.expired_timeout(kStart + 8s) == Duration(2s));
  CHECK_FALSE(link.is_attached());
  CHECK_FALSE(supervisor.channel->is_open());
}

TEST_CASE("supervisor link: one that was replaced detaches nobody", "[launcher]") {
  Supervisor first;
  Supervisor second;
  SupervisorLink link(60s, kStart);
  link.attach(first.channel, first.hello, kStart);
  link.attach(second.channel, second.hello, kStart);
  CHECK_FALSE(first.channel->is_open());
  link.detach(first.channel, kStart);
  CHECK(link.channel() == second.channel);
  CHECK(second.channel->is_open());
}

TEST_CASE("supervisor link: a beat is bounded, whatever is asked for", "[launcher]") {
  Supervisor supervisor;
  SupervisorLink link(60s, kStart);
  supervisor.hello.beat_ms = 0;
  link.apply(supervisor.hello);
  CHECK(link.beat() == Duration(10ms));
  supervisor.hello.beat_ms = 3'600'000;
  link.apply(supervisor.hello);
  CHECK(link.beat() == Duration(10s));
}

TEST_CASE("supervisor link: a beat is due when nothing else was said for so long", "[launcher]") {
  Supervisor supervisor;
  supervisor.hello.beat_ms = 400;
  SupervisorLink link(60s, kStart);
  link.attach(supervisor.channel, supervisor.hello, io::steady_now());
  CHECK(link.until_beat(io::steady_now()) <= Duration{});
  const Time before = io::steady_now();
  link.send(Usage{});
  const Time after = io::steady_now();
  CHECK(link.until_beat(before) >= 400ms);
  CHECK(link.until_beat(after) <= 400ms);
  CHECK(link.until_beat(after + 400ms) <= Duration{});
}
