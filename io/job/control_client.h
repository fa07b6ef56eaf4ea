/// The client's end of a job's control socket (io/job/control_protocol.h), for dtlaunch and dtctl.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/base/time.h"
#include "core/base/wire.h"
#include "io/byte_stream.h"

namespace dt::io {

/// One connection. One coroutine receives and one sends, at most.
class ControlClient {
 public:
  /// kUnavailable if no process listens there.
  static awaitable<Result<std::unique_ptr<ControlClient>>> connect(std::string socket);

  /// Sends a request without waiting for its reply.
  awaitable<Result<void>> send(std::string json);
  /// The next frame: ControlReply, Console or JobEnded. kClosed at the end.
  awaitable<Result<wire::Frame>> receive();
  /// Sends a request and waits for the reply's JSON; kTimeout after `limit`. Other frames before it
  /// are dropped.
  awaitable<Result<std::string>> ask(std::string json, Duration limit = std::chrono::seconds(30));
  /// Ends pending calls. Idempotent.
  void close() { stream_->close(); }

 private:
  explicit ControlClient(StreamPtr stream);
  awaitable<Result<std::string>> exchange(std::string json);

  StreamPtr stream_;
  wire::FrameDecoder decoder_;
  std::string buffer_;
};

}  // namespace dt::io
