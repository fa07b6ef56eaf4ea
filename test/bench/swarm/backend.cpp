#include "test/bench/swarm/backend.h"

#include <algorithm>
#include <utility>

#include "io/frame_channel.h"
#include "test/bench/swarm/host.h"
#include "test/bench/swarm/swarm.h"

namespace dt::swarm {

using io::awaitable;

namespace {

/// As many as the ssh backend makes at once.
constexpr std::size_t kAtOnce = 128;

}  // namespace

SwarmBackend::SwarmBackend(io::asio::any_io_executor executor, std::string socket)
    : socket_(std::move(socket)),
      window_(std::make_shared<io::Semaphore>(std::move(executor), kAtOnce)) {}

awaitable<Result<std::unique_ptr<io::ByteStream>>> SwarmBackend::open(
    Host host, std::vector<std::string> argv) {
  const auto permit = co_await window_->acquire();
  io::UnixSocket socket(co_await io::asio::this_coro::executor);
  const io::asio::local::stream_protocol::endpoint endpoint(socket_);
  auto [ec] = co_await socket.async_connect(endpoint, io::tok);
  if (ec) co_return tl::unexpected(io::asio_error(ec, fmt::format("{}: connect", host)));
  auto stream = io::unix_stream(std::move(socket));
  Reach reach;
  reach.host = to_string(host);
  reach.starts = std::find(argv.begin(), argv.end(), "--start") != argv.end();
  const std::string bytes = wire::frame(reach);
  auto written = co_await stream->write(bytes);
  if (!written) co_return tl::unexpected(written.error());
  // An agent does not speak before it was greeted: nothing comes behind this answer.
  wire::FrameDecoder decoder;
  std::string buffer(64, '\0');
  const auto answer = co_await io::receive_frame(*stream, decoder, buffer, "the host");
  if (!answer) co_return fail(ErrorKind::kUnavailable, "{}: no route to host", host);
  co_return std::move(stream);
}

std::string SwarmBackend::address(const Host& host) const { return address_of(to_string(host)); }

}  // namespace dt::swarm
