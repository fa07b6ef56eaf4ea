#include "io/job/control_client.h"

#include <boost/asio/local/stream_protocol.hpp>

#include "io/asio.h"
#include "io/frame_channel.h"
#include "io/job/control_protocol.h"
#include "io/within.h"

namespace dt::io {

ControlClient::ControlClient(StreamPtr stream)
    : stream_(std::move(stream)), buffer_(std::size_t{64} << 10, '\0') {}

awaitable<Result<std::unique_ptr<ControlClient>>> ControlClient::connect(std::string socket) {
  using Protocol = asio::local::stream_protocol;
  if (socket.size() >= sizeof(sockaddr_un::sun_path))
    co_return fail(ErrorKind::kInvalid, "{}: the path is too long for a unix socket", socket);
  const Protocol::endpoint endpoint(socket);
  UnixSocket connection(co_await asio::this_coro::executor);
  auto [ec] = co_await connection.async_connect(endpoint, tok);
  if (ec) co_return fail(ErrorKind::kUnavailable, "{}: {}", socket, ec.message());
  std::unique_ptr<ControlClient> client(new ControlClient(unix_stream(std::move(connection))));
  co_return std::move(client);
}

awaitable<Result<void>> ControlClient::send(std::string json) {
  const std::string bytes = wire::frame(ControlRequest{std::move(json)});
  co_return co_await stream_->write(bytes);
}

awaitable<Result<wire::Frame>> ControlClient::receive() {
  return receive_frame(*stream_, decoder_, buffer_, "the supervisor");
}

awaitable<Result<std::string>> ControlClient::ask(std::string json, Duration limit) {
  return within(limit, exchange(std::move(json)), "the supervisor's reply");
}

awaitable<Result<std::string>> ControlClient::exchange(std::string json) {
  auto sent = co_await send(std::move(json));
  if (!sent) co_return tl::unexpected(sent.error());
  for (;;) {
    auto frame = co_await receive();
    if (!frame) co_return tl::unexpected(frame.error());
    if (frame->type != ControlReply::kType) continue;
    auto reply = wire::parse<ControlReply>(frame->body);
    if (!reply) co_return tl::unexpected(reply.error());
    co_return std::move(reply->json);
  }
}

}  // namespace dt::io
