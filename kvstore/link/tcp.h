/// One data connection: frames in, straight into the receiver's memory, and a queue of frames out.
/// Asio tells when the socket is ready; the bytes move with our own vectored system calls, since
/// its composed operations cap each call at 64 KB.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "core/base/wire.h"
#include "io/asio.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

using TcpSocket = io::asio::ip::tcp::socket;

/// No Nagle, an end for a peer that vanished without a word: keep-alive (20 s + 4 x 5 s), 20 s for
/// unacknowledged bytes. The buffers are left to the kernel, which grows them to its own limits,
/// far above those of SO_SNDBUF. Between processes of one machine the congestion control is reno:
/// pacing ones (bbr) halve loopback's rate.
void tune(TcpSocket& socket);

/// What the frames of a link are for.
class FrameSink {
 public:
  /// A frame begins. Where its header.payload bytes go, or why the connection is to end.
  virtual Result<std::byte*> begin(const data::Header& header) = 0;
  /// The frame that began is whole. An error ends the connection; the sink may close it as well.
  virtual Result<void> end() = 0;
  /// Nothing more to read for the moment: the time to write what was answered.
  virtual void idle() = 0;

 protected:
  ~FrameSink() = default;
};

/// One thread at a time. First the handshake's conversation with read_frame(), send_text() and
/// flush(); then one coroutine in receive(), one in write_loop(), and anyone on the thread may
/// send().
class TcpLink {
 public:
  explicit TcpLink(TcpSocket socket);

  /// A small wire frame (the handshake's), of at most `max_body` bytes.
  io::awaitable<Result<wire::Frame>> read_frame(std::size_t max_body);
  void send_text(std::string text);
  /// Writes what is queued, for conversations before write_loop() runs.
  io::awaitable<Result<void>> flush();

  /// Hands frames to `sink` until the connection ends; says why it did. Large payloads go from the
  /// socket straight to where the sink wants them, small frames come many to a system call.
  io::awaitable<Error> receive(FrameSink& sink);
  /// While receive() waits for bytes: reads what is there without the loop having said so. True:
  /// there were some. Frames that the limit on the queue left in the buffer are for the next call.
  /// At the connection's end receive() ends, whose caller closes: the other side may take the end
  /// that it sees to mean that it is of no concern here any more.
  bool read_now(FrameSink& sink);
  /// Queues a frame; write_now() sends it. `data` stays valid until it is written or the link is
  /// destroyed; `keep` owns it where the caller does not.
  void send(const data::Header& header, const void* data = nullptr, std::size_t size = 0,
            std::shared_ptr<const void> keep = {});
  /// Writes as much of the queue as the socket takes; write_loop() does the rest. An error closes
  /// the link.
  void write_now();
  /// Writes what write_now() left, until close() or an error.
  io::awaitable<void> write_loop();
  /// Called on the thread whenever queued bytes were written.
  void on_written(std::function<void()> callback) { on_written_ = std::move(callback); }
  /// receive() hands on no frame while so many bytes are queued: what a peer that does not read can
  /// make us keep is bounded. Not for both ends of a connection, which then could wait for each
  /// other.
  void limit_queue(std::size_t bytes) { max_queued_ = bytes; }
  /// Says nothing more, what is queued included; what the other side says is read until it ends the
  /// connection.
  void finish();
  /// Ends receive() and write_loop(). Idempotent.
  void close();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] bool is_over_limit() const { return queued_bytes_ > max_queued_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  /// Read and written.
  [[nodiscard]] std::uint64_t bytes_moved() const { return bytes_read_ + bytes_written_; }
  /// Bytes read from the socket and not yet asked for.
  [[nodiscard]] std::size_t buffered() const { return buffer_end_ - buffer_begin_; }
  /// Takes the descriptor out, for another thread's loop. No longer open.
  [[nodiscard]] int release();

 private:
  struct Outgoing {
    std::array<char, data::kHeaderBytes> head;
    std::size_t head_size = 0;
    const char* data = nullptr;
    std::size_t size = 0;
    std::shared_ptr<const void> keep;
  };
  /// The frame that is arriving.
  struct Arriving {
    data::Header header;
    std::byte* into = nullptr;  ///< Where its next byte goes.
    std::size_t left = 0;
    bool is_open = false;
    bool is_large = false;  ///< This frame or, between frames, the last one.
  };

  io::awaitable<Result<void>> read(void* into, std::size_t size);
  /// Reads and hands on what the socket has, up to a turn's worth of bytes and frames.
  Result<void> drain(FrameSink& sink);
  [[nodiscard]] bool is_turn_over() const;
  /// Hands on what the buffer has, as long as the queue is within its limit and the turn lasts.
  Result<void> parse(FrameSink& sink);
  /// Reads once into the arriving frame and the buffer. False: there was less than asked for.
  Result<bool> fill();
  /// Sends until the queue is empty or the socket full; false: an error.
  bool write_some();

  TcpSocket socket_;
  std::string buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  Arriving arriving_;
  unsigned turn_frames_ = 0;  ///< Handed on since drain() began.
  std::deque<Outgoing> queue_;
  std::size_t front_written_ = 0;
  std::size_t queued_bytes_ = 0;
  std::size_t max_queued_ = ~std::size_t{0};
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
  io::asio::steady_timer wake_;
  io::asio::steady_timer room_;  ///< receive() waits for room in the queue.
  bool is_full_ = false;         ///< The socket took less than there is: write_loop() waits for it.
  std::function<void()> on_written_;
  bool is_waiting_ = false;       ///< receive(), for bytes.
  std::optional<Error> failure_;  ///< What read_now() met.
  bool open_ = true;
  bool is_finished_ = false;
};

}  // namespace dt::kv
