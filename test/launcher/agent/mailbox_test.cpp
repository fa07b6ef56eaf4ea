#include "launcher/agent/mailbox.h"

#include <boost/asio/local/connect_pair.hpp>

#include "io/asio.h"
#include "test/support/catch.h"

using namespace dt;
using launcher::Mailbox;

namespace {

/// A process's connection, as the agent has it.
struct Connection {
  Connection() {
    io::UnixSocket ours(context);
    io::asio::local::connect_pair(ours, theirs);
    channel = std::make_shared<io::FrameChannel>(context.get_executor(),
                                                 io::unix_stream(std::move(ours)));
  }
  io::asio::io_context context;
  io::UnixSocket theirs{context};
  Mailbox::Channel channel;
};

wire::Frame frame(std::uint16_t type, std::string body) { return {type, std::move(body)}; }

}  // namespace

TEST_CASE("mailbox: the latest of each type waits for a process, once", "[launcher]") {
  Connection first;
  Connection second;
  Mailbox mailbox;
  mailbox.deliver(1, "old");
  mailbox.deliver(1, "new");
  mailbox.deliver(2, "other");
  mailbox.connect(first.channel);
  CHECK(first.channel->queued_bytes() ==
        wire::frame(1, "new").size() + wire::frame(2, "other").size());
  mailbox.connect(second.channel);
  CHECK_FALSE(first.channel->is_open());
  CHECK(second.channel->queued_bytes() == 0);
}

TEST_CASE("mailbox: the end of a replaced connection does not end its successor", "[launcher]") {
  Connection first;
  Connection second;
  Mailbox mailbox;  // releases them before their loops end
  mailbox.connect(first.channel);
  mailbox.connect(second.channel);
  mailbox.disconnect(first.channel);
  CHECK(mailbox.connection() == second.channel);
  mailbox.deliver(1, "x");
  CHECK(second.channel->queued_bytes() > 0);
  mailbox.disconnect(second.channel);
  CHECK_FALSE(mailbox.connection());
}

TEST_CASE("mailbox: what a process sends is bounded in types and bytes", "[launcher]") {
  Mailbox mailbox;
  for (std::uint16_t type = 0; type < 64; ++type) REQUIRE(mailbox.keep(frame(type, "x")));
  CHECK_FALSE(mailbox.keep(frame(64, "x")));
  CHECK(mailbox.keep(frame(63, "y")));
  CHECK(mailbox.sent().at(63) == "y");
  const std::string large((std::size_t{1} << 20) - 63, 'z');
  CHECK(mailbox.keep(frame(0, large)));
  CHECK_FALSE(mailbox.keep(frame(1, "xx")));
  CHECK(mailbox.sent().at(1) == "x");
}
