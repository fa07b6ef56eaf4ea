/// The messages between a process and the supervisor, which the agent passes on without reading
/// them. The latest of each type is kept for the side that is not there.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/base/wire.h"
#include "io/frame_channel.h"

namespace dt::launcher {

class Mailbox {
 public:
  using Messages = std::map<std::uint16_t, std::string>;  ///< Bodies by type.
  using Channel = std::shared_ptr<io::FrameChannel>;

  [[nodiscard]] const Channel& connection() const { return connection_; }
  /// The latest that the process has sent of each type.
  [[nodiscard]] const Messages& sent() const { return sent_; }

  /// The process's connection; the one before it is closed. Sends what waits for it.
  void connect(Channel channel);
  /// Unless it was replaced.
  void disconnect(const Channel& channel);
  /// To the process: now, or when it connects.
  void deliver(std::uint16_t type, const std::string& body);
  void drop_waiting() { waiting_.clear(); }
  /// Keeps a message of the process; false: more than an agent keeps.
  [[nodiscard]] bool keep(wire::Frame frame);

 private:
  Messages sent_;
  Messages waiting_;
  Channel connection_;
};

}  // namespace dt::launcher
