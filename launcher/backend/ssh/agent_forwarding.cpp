#include "launcher/backend/ssh/agent_forwarding.h"

#include <boost/asio/local/stream_protocol.hpp>

#include "io/byte_stream.h"
#include "launcher/backend/ssh/splice.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;

awaitable<void> connect_and_splice(std::unique_ptr<SshStream> channel, std::string agent_socket) {
  io::UnixSocket socket(channel->session().executor());
  const asio::local::stream_protocol::endpoint endpoint(agent_socket);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return;
  co_await splice(std::move(channel), std::move(socket));
}

}  // namespace

void forward_agent(const std::shared_ptr<SshSession>& session, std::string socket) {
  session->on_agent_channel(
      [weak = std::weak_ptr(session), socket = std::move(socket)](ssh_channel_struct* channel) {
        const auto live = weak.lock();
        if (!live) return;
        auto stream = std::make_unique<SshStream>(live, channel, nullptr);
        auto spliced = connect_and_splice(std::move(stream), socket);
        asio::co_spawn(live->executor(), std::move(spliced), [](std::exception_ptr) {});
      });
}

}  // namespace dt::launcher
