#include "io/byte_stream.h"

#include <boost/asio/write.hpp>

#include "io/asio.h"

namespace dt::io {
namespace {

class UnixStream final : public ByteStream {
 public:
  explicit UnixStream(UnixSocket socket) : socket_(std::move(socket)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    if (!socket_.is_open()) co_return fail(ErrorKind::kClosed, "the stream is closed");
    const auto buffer = asio::buffer(into.data(), into.size());
    auto [ec, n] = co_await socket_.async_read_some(buffer, tok);
    if (ec == asio::error::eof || ec == asio::error::connection_reset) co_return std::size_t{0};
    if (ec) co_return tl::unexpected(asio_error(ec, "read"));
    co_return n;
  }

  awaitable<Result<void>> write(std::string_view bytes) override {
    if (!socket_.is_open()) co_return fail(ErrorKind::kClosed, "the stream is closed");
    const auto buffer = asio::buffer(bytes);
    auto [ec, n] = co_await asio::async_write(socket_, buffer, tok);
    if (ec) co_return tl::unexpected(asio_error(ec, "write"));
    co_return Result<void>();
  }

  void close() override {
    boost::system::error_code ignored;
    socket_.close(ignored);
  }

 private:
  UnixSocket socket_;
};

}  // namespace

StreamPtr unix_stream(UnixSocket socket) { return std::make_unique<UnixStream>(std::move(socket)); }

Error asio_error(const boost::system::error_code& ec, std::string_view doing) {
  ErrorKind kind = ErrorKind::kIo;
  if (ec == asio::error::operation_aborted || ec == asio::error::eof ||
      ec == asio::error::bad_descriptor)
    kind = ErrorKind::kClosed;
  else if (ec == asio::error::timed_out)
    kind = ErrorKind::kTimeout;
  else if (ec == asio::error::connection_refused || ec == asio::error::connection_reset ||
           ec == asio::error::broken_pipe || ec == asio::error::host_unreachable ||
           ec == asio::error::network_unreachable)
    kind = ErrorKind::kUnavailable;
  return {kind, fmt::format("{}: {}", doing, ec.message())};
}

}  // namespace dt::io
