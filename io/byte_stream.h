/// A two-way stream of bytes, whatever carries it: a unix socket, a child's pipes, an ssh channel.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/result.h"
#include "io/awaitable.h"

namespace dt::io {

/// One reader and one writer coroutine at most. Destroying it closes it.
class ByteStream {
 public:
  virtual ~ByteStream() = default;
  /// At least one byte into `into`; 0 at the end of the stream.
  virtual awaitable<Result<std::size_t>> read(std::span<char> into) = 0;
  /// All of `bytes`, which must stay valid until done.
  virtual awaitable<Result<void>> write(std::string_view bytes) = 0;
  /// Ends pending and later reads and writes with kClosed. Idempotent.
  virtual void close() = 0;
};
using StreamPtr = std::unique_ptr<ByteStream>;

using UnixSocket = boost::asio::local::stream_protocol::socket;

/// A ByteStream over a connected unix socket (or one end of a socketpair).
[[nodiscard]] StreamPtr unix_stream(UnixSocket socket);

}  // namespace dt::io
