#include "kvstore/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace dt::kv {

namespace {

constexpr std::size_t kReadBuffer = std::size_t{64} << 10;
constexpr int kSocketBuffer = 4 << 20;
constexpr std::size_t kMaxPieces = 32;

void set_option(int fd, int level, int name, int value) {
  // Every one of these is an improvement, none a necessity.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void tune(TcpSocket& socket) {
  boost::system::error_code ec;
  const int fd = socket.native_handle();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kSocketBuffer);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, kSocketBuffer);
  const auto local = socket.local_endpoint(ec);
  const auto remote = socket.remote_endpoint(ec);
  if (!ec && local.address() == remote.address())
    (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

TcpLink::TcpLink(TcpSocket socket)
    : socket_(std::move(socket)),
      buffer_(kReadBuffer, '\0'),
      wake_(socket_.get_executor(), io::asio::steady_timer::time_point::max()) {
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
}

io::awaitable<Result<void>> TcpLink::read(void* into, std::size_t size) {
  char* to = static_cast<char*>(into);
  for (;;) {
    const std::size_t have = std::min(size, buffer_end_ - buffer_begin_);
    if (have > 0) {
      std::memcpy(to, buffer_.data() + buffer_begin_, have);
      buffer_begin_ += have;
      to += have;
      size -= have;
    }
    if (size == 0) co_return Result<void>{};
    if (!open_) co_return fail(ErrorKind::kClosed, "the connection was closed");
    // Straight into the caller's memory; what comes after it waits in the buffer.
    buffer_begin_ = buffer_end_ = 0;
    std::array<iovec, 2> pieces = {iovec{to, size}, iovec{buffer_.data(), buffer_.size()}};
    const ssize_t n = ::readv(socket_.native_handle(), pieces.data(), 2);
    if (n == 0) co_return fail(ErrorKind::kClosed, "the other side closed the connection");
    if (n < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (!would_block(error)) co_return tl::unexpected(errno_error(error, "read"));
      auto [ec] = co_await socket_.async_wait(TcpSocket::wait_read, io::tok);
      if (ec) co_return fail(ErrorKind::kClosed, "the connection was closed");
      continue;
    }
    const auto got = static_cast<std::size_t>(n);
    bytes_read_ += got;
    const std::size_t direct = std::min(got, size);
    to += direct;
    size -= direct;
    buffer_end_ = got - direct;
  }
}

io::awaitable<Result<wire::Frame>> TcpLink::read_frame(std::size_t max_body) {
  std::array<char, wire::kFrameHeader> head{};
  auto got = co_await read(head.data(), head.size());
  if (!got) co_return tl::unexpected(got.error());
  wire::Reader reader(std::string_view(head.data(), head.size()));
  std::uint32_t size = 0;
  wire::Frame frame;
  reader.get(size);
  reader.get(frame.type);
  if (size < sizeof(frame.type) || size - sizeof(frame.type) > max_body)
    co_return fail(ErrorKind::kProtocol, "a frame of {} bytes (at most {} are allowed)", size,
                   max_body);
  frame.body.resize(size - sizeof(frame.type));
  auto body = co_await read(frame.body.data(), frame.body.size());
  if (!body) co_return tl::unexpected(body.error());
  co_return std::move(frame);
}

void TcpLink::send(std::string head, const void* data, std::size_t size,
                   std::shared_ptr<const void> keep) {
  if (!open_) return;
  queued_bytes_ += head.size() + size;
  queue_.push_back({std::move(head), static_cast<const char*>(data), size, std::move(keep)});
  wake_.cancel();
}

bool TcpLink::write_some() {
  while (!queue_.empty()) {
    std::array<iovec, kMaxPieces> pieces;
    std::size_t count = 0;
    std::size_t skip = front_written_;
    for (auto& out : queue_) {
      if (count + 2 > kMaxPieces) break;
      const std::size_t from_head = std::min(skip, out.head.size());
      skip -= from_head;
      if (from_head < out.head.size())
        pieces[count++] = {out.head.data() + from_head, out.head.size() - from_head};
      if (skip < out.size) pieces[count++] = {const_cast<char*>(out.data) + skip, out.size - skip};
      skip = 0;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = count;
    const ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
    if (n < 0) {
      if (errno == EINTR) continue;
      return would_block(errno);
    }
    queued_bytes_ -= static_cast<std::size_t>(n);
    front_written_ += static_cast<std::size_t>(n);
    while (!queue_.empty()) {
      const std::size_t whole = queue_.front().head.size() + queue_.front().size;
      if (front_written_ < whole) break;
      front_written_ -= whole;
      queue_.pop_front();
    }
    if (on_written_) on_written_();
  }
  return true;
}

io::awaitable<Result<void>> TcpLink::flush() {
  while (open_ && write_some()) {
    if (queue_.empty()) co_return Result<void>{};
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_write, io::tok);
    if (ec) break;
  }
  co_return fail(ErrorKind::kClosed, "the connection was closed");
}

io::awaitable<void> TcpLink::write_loop() {
  while (open_) {
    if (queue_.empty()) {
      co_await wake_.async_wait(io::tok);
      continue;
    }
    if (!write_some()) break;
    if (queue_.empty() || !open_) continue;
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_write, io::tok);
    if (ec) break;
  }
  close();
}

void TcpLink::close() {
  if (!open_) return;
  open_ = false;
  boost::system::error_code ec;
  socket_.shutdown(TcpSocket::shutdown_both, ec);
  socket_.close(ec);
  wake_.cancel();
}

int TcpLink::release() {
  open_ = false;
  wake_.cancel();
  boost::system::error_code ec;
  return socket_.release(ec);
}

}  // namespace dt::kv
