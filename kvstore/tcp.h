/// One data connection: exact reads into the caller's memory and a queue of frames to write.
/// Asio tells when the socket is ready; the bytes move with our own vectored system calls, since
/// its composed operations cap each call at 64 KB.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "core/wire.h"
#include "io/asio.h"

namespace dt::kv {

using TcpSocket = io::asio::ip::tcp::socket;

/// No Nagle, large buffers, an end for a peer that vanished without a word: keep-alive (20 s + 4 x
/// 5 s), 20 s for unacknowledged bytes. Between processes of one
/// machine the congestion control is reno: pacing ones (bbr) halve loopback's rate.
void tune(TcpSocket& socket);

/// One thread. One coroutine reads, one runs write_loop(); anyone on the thread may send().
class TcpLink {
 public:
  explicit TcpLink(TcpSocket socket);

  /// Exactly `size` bytes; kClosed at the end of the stream.
  io::awaitable<Result<void>> read(void* into, std::size_t size);
  /// A small wire frame (the handshake's), of at most `max_body` bytes.
  io::awaitable<Result<wire::Frame>> read_frame(std::size_t max_body);

  /// Queues a frame. `data` stays valid until it is written or the link is destroyed; `keep` owns
  /// it where the caller does not.
  void send(std::string head, const void* data = nullptr, std::size_t size = 0,
            std::shared_ptr<const void> keep = {});
  /// Writes what is queued, for conversations before write_loop() runs.
  io::awaitable<Result<void>> flush();
  /// Writes what is queued until close() or an error.
  io::awaitable<void> write_loop();
  /// Called on the thread whenever queued bytes were written.
  void on_written(std::function<void()> callback) { on_written_ = std::move(callback); }
  /// Ends reads, writes and write_loop(). Idempotent.
  void close();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  /// Bytes read from the socket and not yet asked for.
  [[nodiscard]] std::size_t buffered() const { return buffer_end_ - buffer_begin_; }
  /// Takes the descriptor out, for another thread's loop. No longer open.
  [[nodiscard]] int release();

 private:
  struct Outgoing {
    std::string head;
    const char* data = nullptr;
    std::size_t size = 0;
    std::shared_ptr<const void> keep;
  };
  /// Writes as much as the socket takes; false: an error.
  bool write_some();

  TcpSocket socket_;
  std::string buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  std::deque<Outgoing> queue_;
  std::size_t front_written_ = 0;
  std::size_t queued_bytes_ = 0;
  std::uint64_t bytes_read_ = 0;
  io::asio::steady_timer wake_;
  std::function<void()> on_written_;
  bool open_ = true;
};

}  // namespace dt::kv
