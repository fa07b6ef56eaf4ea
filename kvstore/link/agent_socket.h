/// The control side of a process of the job: its connection to the host's agent, which carries the
/// messages of core/protocol/control_messages.h to and from the supervisor.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/frame_channel.h"
#include "io/task_group.h"
#include "kvstore/link/link_environment.h"

namespace dt::kv {

/// A connection to the agent that reconnects by itself. One thread.
class AgentSocket {
 public:
  explicit AgentSocket(AgentAddress address) : address_(std::move(address)) {}

  /// Connects, identifies, passes every frame to `on_frame`; reconnects when the connection ends.
  /// Returns when no agent could be reached for the orphan limit. `group` runs the writers and
  /// outlives this.
  io::awaitable<Error> run(io::TaskGroup& group, std::function<void(const wire::Frame&)> on_frame);

  /// Sends now if there is a connection; each later connection begins with the latest message of
  /// each type. Messages are idempotent, so a repetition is harmless.
  template <class Message>
  void send(const Message& message) {
    std::string frame = wire::frame(message);
    if (channel_) channel_->send_bytes(frame);
    latest_[Message::kType] = std::move(frame);
  }
  /// The message was answered: it is not sent again.
  template <class Message>
  void forget() {
    latest_.erase(Message::kType);
  }
  /// Waits until all messages are written.
  io::awaitable<void> flush();

 private:
  AgentAddress address_;
  std::map<std::uint16_t, std::string> latest_;
  std::shared_ptr<io::FrameChannel> channel_;  ///< Null while there is no connection.
};

/// Receives the supervisor's messages to a worker. Called on any thread.
class JobListener {
 public:
  virtual ~JobListener() = default;
  virtual void on_servers(Servers servers) = 0;
  virtual void on_release(Release release) = 0;
  virtual void on_shrunk(Shrunk shrunk) = 0;
  /// The agent is lost.
  virtual void on_lost(Error error) = 0;
};

/// A worker's control messages to and from the supervisor; tests implement their own. Used on one
/// loop's thread.
class JobControl {
 public:
  virtual ~JobControl() = default;
  /// Serves until it is cancelled or the agent is lost. `group` outlives this object.
  virtual io::awaitable<void> run(io::TaskGroup& group, JobListener& listener) = 0;
  virtual void opened(const OpenedKvStore& message) = 0;
  virtual void arrive(const Arrive& message) = 0;
  /// The arrival was answered: it is not sent again after a reconnection.
  virtual void released() = 0;
  virtual void progress(const Progress& message) = 0;
  virtual void figures(const Figures& message) = 0;
  virtual void heard(const ServersHeard& message) = 0;
};

[[nodiscard]] std::unique_ptr<JobControl> make_job_control(AgentAddress address);

}  // namespace dt::kv
