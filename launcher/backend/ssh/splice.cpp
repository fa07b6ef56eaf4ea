#include "launcher/backend/ssh/splice.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <string>

namespace dt::launcher {
namespace {

io::awaitable<void> copy(io::ByteStream& from, io::ByteStream& to) {
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

io::awaitable<void> connect_and_splice(SshStreamPtr channel, std::string agent) {
  io::UnixSocket socket(channel->session().executor());
  const io::asio::local::stream_protocol::endpoint endpoint(agent);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return;
  co_await splice(std::move(channel), std::move(socket));
}

}  // namespace

io::awaitable<void> splice(SshStreamPtr channel, io::UnixSocket socket) {
  const auto local = io::unix_stream(std::move(socket));
  using namespace io::asio::experimental::awaitable_operators;
  auto both = copy(*channel, *local) && copy(*local, *channel);
  co_await std::move(both);
}

void forward_agent(const SessionPtr& session, std::string socket) {
  session->on_agent_channel(
      [weak = std::weak_ptr(session), socket = std::move(socket)](ssh_channel_struct* channel) {
        const auto live = weak.lock();
        if (!live) return;
        auto stream = std::make_unique<SshStream>(live, channel, nullptr);
        auto spliced = connect_and_splice(std::move(stream), socket);
        io::asio::co_spawn(live->executor(), std::move(spliced), [](std::exception_ptr) {});
      });
}

}  // namespace dt::launcher
