#include "kvstore/link/tcp.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>

namespace dt::kv {

namespace {

constexpr std::size_t kReadBuffer = std::size_t{64} << 10;
/// Payloads of at least this size are read by a system call of their own, straight to their place.
constexpr std::size_t kLarge = std::size_t{32} << 10;
/// Bytes read from one connection before the others get their turn. About a chunk, so that several
/// workers' contributions to one chunk meet in the cache.
constexpr std::size_t kTurn = std::size_t{1} << 20;
/// Small frames passed on in a turn: the cost of one depends on the sink.
constexpr unsigned kTurnFrames = 256;
constexpr std::size_t kMaxPieces = 384;
/// Bytes that get their tag before they are sent, and after they were read, while they are in the
/// cache.
constexpr std::size_t kTagAtOnce = std::size_t{256} << 10;
/// Bytes beyond those in flight that the kernel takes from us.
constexpr int kUnsentInKernel = 128 << 10;

void set_option(int fd, int level, int name, int value) {
  // Errors are ignored: each of these options is an improvement, none is a necessity.
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

void tune(TcpSocket& socket) {
  const int fd = socket.native_handle();
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 4);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 20'000);
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentInKernel);
  if (is_inside_machine(socket)) (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
}

bool is_inside_machine(const TcpSocket& socket) {
  boost::system::error_code ec;
  const auto local = socket.local_endpoint(ec).address();
  if (ec) return false;
  const auto remote = socket.remote_endpoint(ec).address();
  if (ec) return false;
  return local == remote || (local.is_loopback() && remote.is_loopback());
}

TcpConnection::TcpConnection(TcpSocket socket)
    : socket_(std::move(socket)),
      buffer_(kReadBuffer, '\0'),
      wake_(socket_.get_executor(), io::asio::steady_timer::time_point::max()),
      room_(socket_.get_executor(), io::asio::steady_timer::time_point::max()) {
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
}

void TcpConnection::add_tags(const FrameKey& out, const FrameKey& in) {
  tags_out_.emplace(out);
  tags_in_.emplace(in);
}

io::awaitable<Result<void>> TcpConnection::read(void* into, std::size_t size) {
  char* to = static_cast<char*>(into);
  for (;;) {
    const std::size_t have = std::min(size, buffered());
    std::memcpy(to, buffer_.data() + buffer_begin_, have);
    buffer_begin_ += have;
    to += have;
    size -= have;
    if (size == 0) co_return Result<void>{};
    auto more = fill();
    if (!more) co_return tl::unexpected(more.error());
    if (buffered() > 0) continue;
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_read, io::tok);
    if (ec) co_return fail(ErrorKind::kClosed, "the connection was closed");
  }
}

io::awaitable<Result<wire::Frame>> TcpConnection::read_frame(std::size_t max_body) {
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

io::awaitable<Error> TcpConnection::receive(FrameSink& sink) {
  for (;;) {
    auto drained = drain(sink);
    const bool has_stopped = is_over_limit() || is_turn_over();
    sink.idle();
    if (!drained) co_return drained.error();
    while (open_ && is_over_limit()) co_await room_.async_wait(io::tok);
    if (has_stopped) {  // the buffer may contain complete frames
      co_await io::asio::post(socket_.get_executor(), io::tok);
      continue;
    }
    is_waiting_ = true;
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_read, io::tok);
    is_waiting_ = false;
    if (failure_) co_return *failure_;
    if (ec) co_return Error{ErrorKind::kClosed, "the connection was closed"};
  }
}

bool TcpConnection::is_turn_over() const { return turn_frames_ >= kTurnFrames; }

bool TcpConnection::read_now(FrameSink& sink) {
  if (!open_ || !is_waiting_ || failure_ || is_over_limit()) return false;
  const std::uint64_t before = bytes_read_;
  const bool has_rest = buffered() > 0;
  auto drained = drain(sink);
  while (drained && is_turn_over() &&
         !is_over_limit()) {  // receive() waits for bytes, not for these
    turn_frames_ = 0;
    drained = parse(sink);
  }
  const bool has_read = has_rest || bytes_read_ != before;
  if (has_read) sink.idle();
  if (!drained) {
    failure_ = drained.error();
    boost::system::error_code ec;
    socket_.cancel(ec);  // receive() ends
  }
  return has_read;
}

Result<void> TcpConnection::drain(FrameSink& sink) {
  const std::uint64_t turn_ends = bytes_read_ + kTurn;
  turn_frames_ = 0;
  for (;;) {
    auto parsed = parse(sink);
    if (!parsed || bytes_read_ >= turn_ends || is_over_limit() || is_turn_over()) return parsed;
    auto more = fill();
    if (!more) return tl::unexpected(more.error());
    if (*more) continue;
    return parse(sink);
  }
}

Result<void> TcpConnection::parse(FrameSink& sink) {
  for (;;) {
    if (!arriving_.is_open) {
      if (!open_) return fail(ErrorKind::kClosed, "the connection was closed");
      if (buffered() < head_bytes() || is_over_limit() || is_turn_over()) return {};
      const char* head = buffer_.data() + buffer_begin_;
      if (tags_in_ && !same_tag(tags_in_->header(head), head + data::kHeaderBytes))
        return fail(ErrorKind::kProtocol, "a frame's header is not authentic");
      auto header = data::decode(std::string_view(head, data::kHeaderBytes));
      if (!header) return tl::unexpected(header.error());
      buffer_begin_ += head_bytes();
      auto into = sink.begin(*header);
      if (!into) return tl::unexpected(into.error());
      const std::size_t tail = tags_in_ && header->payload > 0 ? data::kTagBytes : 0;
      arriving_ = {*into, header->payload, tail, true, header->payload >= kLarge};
    }
    const std::size_t have = std::min(arriving_.left, buffered());
    if (have > 0) {
      std::memcpy(arriving_.into, buffer_.data() + buffer_begin_, have);
      buffer_begin_ += have;
      took(have);
    }
    if (arriving_.left > 0 || buffered() < arriving_.tail) return {};
    if (arriving_.tail > 0) {
      if (!same_tag(tags_in_->payload(), buffer_.data() + buffer_begin_))
        return fail(ErrorKind::kProtocol, "a frame's payload is not authentic");
      buffer_begin_ += std::exchange(arriving_.tail, 0);
    }
    arriving_.is_open = false;
    ++turn_frames_;
    auto taken = sink.end();
    if (!taken) return taken;
  }
}

void TcpConnection::took(std::size_t bytes) {
  if (tags_in_ && bytes > 0) tags_in_->add(arriving_.into, bytes);
  arriving_.into += bytes;
  arriving_.left -= bytes;
}

Result<bool> TcpConnection::fill() {
  if (!open_) return fail(ErrorKind::kClosed, "the connection was closed");
  if (buffer_begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + buffer_begin_, buffered());
    buffer_end_ -= buffer_begin_;
    buffer_begin_ = 0;
  }
  // After a large payload only the next header is read: its payload is likely to be large as well,
  // and bytes that come through the buffer are copied once more.
  const std::size_t direct = tags_in_ ? std::min(arriving_.left, kTagAtOnce) : arriving_.left;
  const std::size_t most = arriving_.is_large ? arriving_.tail + head_bytes() : buffer_.size();
  const std::size_t room = direct == arriving_.left ? most - buffer_end_ : 0;
  std::array<iovec, 2> pieces = {iovec{arriving_.into, direct},
                                 iovec{buffer_.data() + buffer_end_, room}};
  const std::size_t wanted = direct + room;
  for (;;) {
    const ssize_t n = ::readv(socket_.native_handle(), pieces.data(), 2);
    if (n == 0) return fail(ErrorKind::kClosed, "the other side closed the connection");
    if (n < 0) {
      const int error = errno;
      if (error == EINTR) continue;
      if (would_block(error)) return false;
      return tl::unexpected(errno_error(error, "read"));
    }
    const auto got = static_cast<std::size_t>(n);
    bytes_read_ += got;
    took(std::min(got, direct));
    buffer_end_ += got - std::min(got, direct);
    return got == wanted;
  }
}

void TcpConnection::send_text(std::string text) {
  if (!open_ || is_finished_) return;
  auto keep = std::make_shared<const std::string>(std::move(text));
  Outgoing& out = queue_.emplace_back();
  out.data = keep->data();
  out.size = keep->size();
  queued_bytes_ += out.size;
  out.keep = std::move(keep);
}

void TcpConnection::send(const data::Header& header, const void* data, std::size_t size,
                         std::shared_ptr<const void> keep) {
  if (!open_ || is_finished_) return;
  auto at = queue_.end();
  const bool is_value = header.type == data::Type::kValue;
  const auto is_overtaken = [&](const Outgoing& one) {
    const bool has_begun = one.has_head_tag || (&one == &queue_.front() && front_written_ > 0);
    return one.priority && *one.priority < header.priority && !has_begun;
  };
  while (is_value && at != queue_.begin() && is_overtaken(*std::prev(at))) --at;
  Outgoing& out = *queue_.emplace(at);
  if (is_value) out.priority = header.priority;
  std::memcpy(out.head.data(), &header, data::kHeaderBytes);
  out.head_size = data::kHeaderBytes + (tags_out_ ? data::kTagBytes : 0);
  out.data = static_cast<const char*>(data);
  out.size = size;
  out.tail_size = tags_out_ && size > 0 ? data::kTagBytes : 0;
  out.keep = std::move(keep);
  queued_bytes_ += out.bytes();
}

bool TcpConnection::tag(Outgoing& out, std::size_t sent, std::size_t most) {
  if (!std::exchange(out.has_head_tag, true)) {
    const Tag tag = tags_out_->header(out.head.data());
    std::ranges::copy(tag, out.head.begin() + data::kHeaderBytes);
  }
  if (out.tagged == out.size) return true;
  const std::size_t ready = out.head_size + out.tagged - std::min(sent, out.head_size + out.tagged);
  if (ready >= most) return false;
  const std::size_t now = std::min(out.size - out.tagged, most - ready);
  tags_out_->add(out.data + out.tagged, now);
  out.tagged += now;
  if (out.tagged < out.size) return false;
  out.tail = tags_out_->payload();
  return true;
}

/// The bytes of a system call.
class TcpConnection::Pieces {
 public:
  /// All but the first `skip` bytes, by which `skip` is reduced.
  void add(const char* data, std::size_t size, std::size_t& skip) {
    const std::size_t from = std::min(skip, size);
    skip -= from;
    if (from < size) pieces_[count_++] = {const_cast<char*>(data) + from, size - from};
    bytes_ += size - from;
  }
  [[nodiscard]] bool has_room() const { return count_ + 3 <= kMaxPieces; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] ssize_t send(int fd) {
    msghdr message{};
    message.msg_iov = pieces_.data();
    message.msg_iovlen = count_;
    return ::sendmsg(fd, &message, MSG_NOSIGNAL);
  }

 private:
  std::array<iovec, kMaxPieces> pieces_;
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
};

bool TcpConnection::write_some() {
  while (!queue_.empty()) {
    Pieces pieces;
    std::size_t skip = front_written_;
    for (auto& out : queue_) {
      if (!pieces.has_room() || (tags_out_ && pieces.bytes() >= kTagAtOnce)) break;
      const bool is_whole = !tags_out_ || tag(out, skip, kTagAtOnce - pieces.bytes());
      pieces.add(out.head.data(), out.head_size, skip);
      pieces.add(out.data, is_whole ? out.size : out.tagged, skip);
      if (!is_whole) break;
      pieces.add(out.tail.data(), out.tail_size, skip);
    }
    const ssize_t n = pieces.send(socket_.native_handle());
    if (n < 0) {
      if (errno == EINTR) continue;
      is_full_ = would_block(errno);
      return is_full_;
    }
    bytes_written_ += static_cast<std::size_t>(n);
    const bool was_over = is_over_limit();
    queued_bytes_ -= static_cast<std::size_t>(n);
    if (was_over && !is_over_limit()) room_.cancel();
    front_written_ += static_cast<std::size_t>(n);
    while (!queue_.empty()) {
      const std::size_t whole = queue_.front().bytes();
      if (front_written_ < whole) break;
      front_written_ -= whole;
      queue_.pop_front();
    }
    if (on_written_) on_written_();
  }
  return true;
}

void TcpConnection::write_now() {
  if (!open_ || is_full_ || queue_.empty()) return;
  if (!write_some()) return close();
  if (is_full_) wake_.cancel();
}

io::awaitable<Result<void>> TcpConnection::flush() {
  while (open_ && write_some()) {
    if (queue_.empty()) co_return Result<void>{};
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_write, io::tok);
    if (ec) break;
    is_full_ = false;
  }
  co_return fail(ErrorKind::kClosed, "the connection was closed");
}

io::awaitable<void> TcpConnection::write_loop() {
  while (open_) {
    if (!is_full_) {
      co_await wake_.async_wait(io::tok);
      continue;
    }
    auto [ec] = co_await socket_.async_wait(TcpSocket::wait_write, io::tok);
    if (ec) break;
    is_full_ = false;
    // Closed after the wait had ended: what is queued may be the memory of a caller that has gone.
    if (!open_ || !write_some()) break;
  }
  close();
}

void TcpConnection::finish() {
  if (!open_) return;
  is_finished_ = true;
  queue_.clear();
  front_written_ = 0;
  queued_bytes_ = 0;
  boost::system::error_code ec;
  socket_.shutdown(TcpSocket::shutdown_send, ec);
}

std::size_t TcpConnection::unacked_bytes() {
  int bytes = 0;
  if (open_) (void)::ioctl(socket_.native_handle(), SIOCOUTQ, &bytes);
  return static_cast<std::size_t>(bytes);
}

void TcpConnection::close() {
  if (!open_) return;
  open_ = false;
  boost::system::error_code ec;
  socket_.shutdown(TcpSocket::shutdown_both, ec);
  socket_.close(ec);
  wake_.cancel();
  room_.cancel();
}

int TcpConnection::release() {
  open_ = false;
  wake_.cancel();
  boost::system::error_code ec;
  return socket_.release(ec);
}

}  // namespace dt::kv
