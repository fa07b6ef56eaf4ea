/// One data connection: frames in, straight into the receiver's memory, and a queue of frames out.
/// Asio reports when the socket is ready; TcpConnection makes its own vectored system calls, since
/// Asio's composed operations limit each call to 64 KB.
#pragma once

#include <array>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/wire.h"
#include "io/asio.h"
#include "kvstore/link/frame_tags.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

using TcpSocket = io::asio::ip::tcp::socket;

/// Sets the socket's options. No Nagle; the connection ends if the peer vanishes: keep-alive (20 s
/// + 4 x 5 s), 20 s for unacknowledged bytes. The kernel chooses the buffers' sizes, up to limits
/// far above those of SO_SNDBUF, and takes few bytes beyond those in flight: what is urgent cannot
/// overtake what it has, on a slow link megabytes otherwise. Between processes of one machine the
/// congestion control is reno: pacing ones (bbr) halve loopback's rate.
void tune(TcpSocket& socket);

/// By the addresses, both ends are processes of this machine: what they send crosses no network.
[[nodiscard]] bool is_inside_machine(const TcpSocket& socket);

/// Receives the frames of a link.
class FrameSink {
 public:
  /// A frame begins; where frames have tags, the header's is right. Returns where its
  /// header.payload bytes go, which may be written before it is known whether they are authentic;
  /// an error ends the connection.
  virtual Result<std::byte*> begin(const data::Header& header) = 0;
  /// The frame is complete and, where frames have tags, authentic. An error ends the connection;
  /// the sink may close it as well.
  virtual Result<void> end() = 0;
  /// There is nothing more to read for now: write the queued answers.
  virtual void idle() = 0;

 protected:
  ~FrameSink() = default;
};

/// One thread at a time. First the handshake with read_frame(), send_text() and flush(); then one
/// coroutine in receive() and one in write_loop(), and any code on the thread may call send().
class TcpConnection {
 public:
  explicit TcpConnection(TcpSocket socket);

  /// A small wire frame (the handshake's), of at most `max_body` bytes.
  io::awaitable<Result<wire::Frame>> read_frame(std::size_t max_body);
  void send_text(std::string text);
  /// Writes the queue; only before write_loop() runs.
  io::awaitable<Result<void>> flush();
  [[nodiscard]] bool is_inside_machine() const { return kv::is_inside_machine(socket_); }

  /// From now on every frame has tags in both directions, under the keys for what goes out and for
  /// what comes in. A wrong tag ends receive() with kProtocol.
  void add_tags(const FrameKey& out, const FrameKey& in);
  /// Passes frames to `sink` until the connection ends; returns the reason. Large payloads go from
  /// the socket straight to the sink's memory; one system call reads many small frames.
  io::awaitable<Error> receive(FrameSink& sink);
  /// While receive() waits for bytes: reads without waiting for the reactor. True: there were
  /// bytes. Frames that the queue's limit left in the buffer are handled at the next call. At the
  /// connection's end receive() returns, and its caller closes the connection, not this function:
  /// to the other side the close means that this side no longer uses its memory.
  bool read_now(FrameSink& sink);
  /// Queues a frame; write_now() sends it. A kValue goes before values of lower priority of which
  /// no byte was sent. `data` must stay valid until it is written or the link is destroyed; `keep`
  /// owns it if the caller does not.
  void send(const data::Header& header, const void* data = nullptr, std::size_t size = 0,
            std::shared_ptr<const void> keep = {});
  /// Writes as much of the queue as the socket accepts; write_loop() writes the rest. An error
  /// closes the link.
  void write_now();
  /// Writes what write_now() left, until close() or an error.
  io::awaitable<void> write_loop();
  /// Called on the thread whenever queued bytes were written.
  void on_written(std::function<void()> callback) { on_written_ = std::move(callback); }
  /// receive() passes no frame to the sink while more bytes are queued: this bounds the memory that
  /// a peer that does not read can take. Set it at one end only, since both ends could wait for
  /// each other.
  void limit_queue(std::size_t bytes) { max_queued_ = bytes; }
  /// Drops the queue and ends this side's stream; frames are received until the other side ends the
  /// connection.
  void finish();
  /// Ends receive() and write_loop(). Idempotent.
  void close();
  [[nodiscard]] bool is_open() const { return open_; }
  [[nodiscard]] std::size_t queued_bytes() const { return queued_bytes_; }
  [[nodiscard]] bool is_over_limit() const { return queued_bytes_ > max_queued_; }
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  /// Written, and not acknowledged by the other side's kernel.
  [[nodiscard]] std::size_t unacked_bytes();
  /// Read and written.
  [[nodiscard]] std::uint64_t bytes_moved() const { return bytes_read_ + bytes_written_; }
  /// Bytes read from the socket that were not passed on yet.
  [[nodiscard]] std::size_t buffered() const { return buffer_end_ - buffer_begin_; }
  /// Releases the descriptor, for another thread's loop. Afterwards the link is not open.
  [[nodiscard]] int release();

 private:
  struct Outgoing {
    std::array<char, data::kHeaderBytes + data::kTagBytes> head;  ///< The tag is last.
    std::size_t head_size = 0;
    const char* data = nullptr;
    std::size_t size = 0;
    std::shared_ptr<const void> keep;
    std::optional<std::int32_t> priority;  ///< A value's.
    // With tags:
    Tag tail{};  ///< The payload's tag.
    std::size_t tail_size = 0;
    bool has_head_tag = false;
    std::size_t tagged = 0;  ///< Bytes of `data` that the tag covers so far.

    [[nodiscard]] std::size_t bytes() const { return head_size + size + tail_size; }
  };
  class Pieces;
  /// The frame that is arriving.
  struct Arriving {
    std::byte* into = nullptr;  ///< Where its next byte goes.
    std::size_t left = 0;
    std::size_t tail = 0;  ///< Bytes of the tag after the payload.
    bool is_open = false;
    bool is_large = false;  ///< This frame or, between frames, the last one.
  };

  io::awaitable<Result<void>> read(void* into, std::size_t size);
  /// Reads and passes on what the socket has, up to a turn's limits of bytes and frames.
  Result<void> drain(FrameSink& sink);
  [[nodiscard]] bool is_turn_over() const;
  /// Passes on what the buffer has, while the queue is within its limit and the turn lasts.
  Result<void> parse(FrameSink& sink);
  /// Reads once into the arriving frame and the buffer. False: there was less than requested.
  Result<bool> fill();
  /// Sends until the queue is empty or the socket is full; false: an error.
  bool write_some();
  /// Adds tags to the frame until `most` bytes can be sent, of which `sent` were. False: its end
  /// has none yet.
  bool tag(Outgoing& out, std::size_t sent, std::size_t most);
  /// The arriving frame's next bytes are in their place.
  void took(std::size_t bytes);
  [[nodiscard]] std::size_t head_bytes() const {
    return data::kHeaderBytes + (tags_in_ ? data::kTagBytes : 0);
  }

  TcpSocket socket_;
  std::string buffer_;
  std::size_t buffer_begin_ = 0;
  std::size_t buffer_end_ = 0;
  std::optional<FrameTags> tags_out_;
  std::optional<FrameTags> tags_in_;
  Arriving arriving_;
  unsigned turn_frames_ = 0;  ///< Frames passed on since drain() began.
  std::deque<Outgoing> queue_;
  std::size_t front_written_ = 0;
  std::size_t queued_bytes_ = 0;
  std::size_t max_queued_ = ~std::size_t{0};
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_written_ = 0;
  io::asio::steady_timer wake_;
  io::asio::steady_timer room_;  ///< receive() waits for room in the queue.
  bool is_full_ = false;         ///< The socket is full: write_loop() waits for it.
  std::function<void()> on_written_;
  bool is_waiting_ = false;       ///< receive() waits for bytes.
  std::optional<Error> failure_;  ///< The error of read_now().
  bool open_ = true;
  bool is_finished_ = false;
};

}  // namespace dt::kv
