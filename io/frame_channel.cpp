#include "io/frame_channel.h"

namespace dt::io {

namespace {
/// A supervisor has one for each host, and libssh hands over no more at a time.
constexpr std::size_t kReadSize = std::size_t{4} << 10;
}  // namespace

awaitable<Result<wire::Frame>> receive_frame(ByteStream& stream, wire::FrameDecoder& decoder,
                                             std::string& buffer, const char* other) {
  for (;;) {
    auto frame = decoder.next();
    if (!frame) co_return tl::unexpected(frame.error());
    if (*frame) co_return std::move(**frame);
    const std::span<char> into(buffer);
    auto n = co_await stream.read(into);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) co_return fail(ErrorKind::kClosed, "{} closed the connection", other);
    decoder.feed(std::string_view(buffer).substr(0, *n));
  }
}

FrameChannel::FrameChannel(asio::any_io_executor executor, StreamPtr stream, std::size_t max_queued)
    : stream_(std::move(stream)),
      read_buffer_(kReadSize, '\0'),
      max_queued_(max_queued),
      wake_(executor, kNever),
      drained_(executor, kNever) {}

bool FrameChannel::send_bytes(std::string frame) {
  if (!open_) return false;
  if (queued_bytes_ + frame.size() > max_queued_) {
    close();
    return false;
  }
  queued_bytes_ += frame.size();
  queue_.push_back(std::move(frame));
  wake_.cancel();
  return true;
}

awaitable<void> FrameChannel::write_loop() {
  while (open_) {
    if (queue_.empty()) {
      drained_.cancel();
      co_await wake_.async_wait(tok);
      continue;
    }
    // The front stays in place while it is written: its bytes must not move.
    auto written = co_await stream_->write(queue_.front());
    if (!written) break;
    queued_bytes_ -= queue_.front().size();
    queue_.pop_front();
  }
  close();
}

awaitable<void> FrameChannel::flush() {
  while (open_ && !queue_.empty()) co_await drained_.async_wait(tok);
}

void FrameChannel::close() {
  if (!open_) return;
  open_ = false;
  stream_->close();
  wake_.cancel();
  drained_.cancel();
}

}  // namespace dt::io
