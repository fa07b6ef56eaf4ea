/// Messages over a ByteStream: frames in, a bounded queue of frames out.
#pragma once

#include <deque>
#include <string>

#include "core/base/wire.h"
#include "io/asio.h"
#include "io/byte_stream.h"

namespace dt::io {

/// The next frame of `stream`, which `decoder` has begun; kClosed when `other` ("the supervisor")
/// has closed the connection; kProtocol on garbage. `buffer` is for the bytes read.
[[nodiscard]] awaitable<Result<wire::Frame>> receive_frame(ByteStream& stream,
                                                           wire::FrameDecoder& decoder,
                                                           std::string& buffer, const char* other);

/// One thread. One coroutine calls receive(), one runs write_loop(), any may send().
/// Typical: group.spawn(channel.write_loop()); while (auto f = co_await channel.receive()) ...
class FrameChannel {
 public:
  /// `max_queued`: bytes waiting to be written after which send() refuses.
  explicit FrameChannel(asio::any_io_executor executor, StreamPtr stream,
                        std::size_t max_queued = std::size_t{64} << 20);

  /// See receive_frame().
  awaitable<Result<wire::Frame>> receive() {
    return receive_frame(*stream_, decoder_, read_buffer_, "the other side");
  }

  /// Queues a message. False (and the channel is closed) when the queue is full or it was closed.
  template <class Message>
  bool send(const Message& message) {
    return send_bytes(wire::frame(message));
  }
  bool send_bytes(std::string frame);

  /// Writes queued frames; returns after close() or an error of the stream.
  awaitable<void> write_loop();
  /// Waits until everything queued so far is written or the channel closed.
  awaitable<void> flush();
  /// Ends receive() and write_loop(). Idempotent.
  void close();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }

 private:
  StreamPtr stream_;
  wire::FrameDecoder decoder_;
  std::string read_buffer_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t max_queued_;
  asio::steady_timer wake_;
  asio::steady_timer drained_;
  bool open_ = true;
};

}  // namespace dt::io
