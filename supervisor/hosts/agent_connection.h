/// The supervisor's link to one host's agent: opened through a backend, opened again when it
/// breaks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/frame_channel.h"
#include "launcher/backend/backend.h"

namespace dt::io {
class TaskGroup;
}

namespace dt::supervisor {

/// One thread. run() must be running; it returns once the link has ended.
class AgentConnection {
 public:
  struct Options {
    std::string job;
    Host host;
    Term term;
    /// The place of the host's earlier agent; nullopt if there was none.
    std::function<std::optional<AgentPlace>()> last_place;
    std::uint64_t seed = 0;  ///< Seed of the jitter before it is attached again.
    std::uint32_t orphan_timeout_ms = 300'000;
    Duration notice_grace = std::chrono::seconds(25);     ///< See launcher::AgentOptions.
    Duration beat = std::chrono::milliseconds(250);       ///< See Beat.
    Duration answer_deadline = std::chrono::seconds(30);  ///< From the open stream to AgentState.
    Duration silence_limit = std::chrono::seconds(5);
    /// The job of another master ends: agents serve no lower term any more, and only a host that
    /// says that no agent is there has parted.
    bool takes_over = false;
  };
  struct Callbacks {
    std::function<void(const AgentState&)> attached;
    std::function<void(const wire::Frame&)> frame;
    /// The link broke or could not be made. `gone`: the host has no agent. After a failed
    /// attach(true) or `gone` it waits for the next attach(); otherwise it attaches again, with
    /// growing delay.
    std::function<void(const Error&, bool gone)> down;
    /// The agent obeys a supervisor of that term. May be empty.
    std::function<void(Term)> outranked = {};
  };

  AgentConnection(io::asio::any_io_executor executor, launcher::Backend& backend, Options options,
                  Callbacks callbacks);

  /// Returns when shut_down() is complete, or when cancelled.
  io::awaitable<void> run();
  /// Reaches the agent; starts one if `start` and none runs. No effect if the link is up.
  void attach(bool start);
  /// Queues a message; false if the link is down: it is dropped (the agent's report shows what it
  /// missed).
  template <class Message>
  bool send(const Message& message) {
    return up_ && channel_->send(message);
  }
  /// The agent stops its processes and ends; then the link ends. A link that is being made
  /// continues until it can send that, or finds no agent, or is cancelled: behind a connection that
  /// is not up yet an agent may have processes, or may have just been started.
  void shut_down(std::uint32_t grace_ms, bool drops_output = false);
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] bool up() const { return up_; }
  /// The time of the agent's last message; Time{} before the first one.
  [[nodiscard]] Time heard_at() const { return heard_at_; }
  /// The same of its last output.
  [[nodiscard]] Time output_at() const { return output_at_; }
  /// shut_down() was called, and no agent is left to send it to.
  [[nodiscard]] bool has_parted() const { return closing_ && !last_word_; }

 private:
  io::awaitable<void> one_connection(bool start);
  io::awaitable<Result<void>> converse(io::TaskGroup& tasks);
  io::awaitable<void> end_silent_link();
  io::awaitable<Result<AgentState>> greet();
  io::awaitable<Result<wire::Frame>> receive();
  void say_hello();
  void note(const wire::Frame& frame);
  void lost(const Error& error, bool gone);

  io::asio::any_io_executor executor_;
  launcher::Backend& backend_;
  Options options_;
  Callbacks callbacks_;
  std::unique_ptr<io::FrameChannel> channel_;
  io::asio::steady_timer wake_;
  bool wanted_ = false;
  bool start_ = false;
  bool up_ = false;
  bool is_silent_ = false;  ///< The link was closed for its silence.
  bool closing_ = false;
  std::optional<Shutdown> last_word_;  ///< It could not be sent yet.
  bool ended_ = false;
  Time heard_at_{};
  Time output_at_{};
  std::uint32_t failures_ = 0;  ///< In a row.
  Time said_hello_at_{};
  std::map<ProcessId, std::uint64_t> received_;  ///< See AgentHello.
};

}  // namespace dt::supervisor
