#include "launcher/backend/ssh/agent_forwarding.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "io/byte_stream.h"
#include "launcher/backend/ssh/stream.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;

awaitable<void> copy(io::ByteStream& from, io::ByteStream& to) {
  std::string buffer(std::size_t{16} << 10, '\0');
  for (;;) {
    auto n = co_await from.read(buffer);
    if (!n || *n == 0) break;
    const std::string_view bytes(buffer.data(), *n);
    auto sent = co_await to.write(bytes);
    if (!sent) break;
  }
  from.close();
  to.close();
}

awaitable<void> splice(std::unique_ptr<SshStream> channel, std::string agent_socket) {
  io::UnixSocket socket(channel->session().executor());
  const asio::local::stream_protocol::endpoint endpoint(agent_socket);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return;
  auto agent = io::unix_stream(std::move(socket));
  using namespace asio::experimental::awaitable_operators;
  auto both = copy(*channel, *agent) && copy(*agent, *channel);
  co_await std::move(both);
}

}  // namespace

void forward_agent(const std::shared_ptr<SshSession>& session, std::string socket) {
  session->on_agent_channel(
      [weak = std::weak_ptr(session), socket = std::move(socket)](ssh_channel_struct* channel) {
        const auto live = weak.lock();
        if (!live) return;
        auto spliced = splice(std::make_unique<SshStream>(live, channel, nullptr), socket);
        asio::co_spawn(live->executor(), std::move(spliced), [](std::exception_ptr) {});
      });
}

}  // namespace dt::launcher
