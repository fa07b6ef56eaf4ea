/// The supervisor that is attached to an agent: its connection, its term, and how long the agent
/// has been without one.
#pragma once

#include <memory>
#include <optional>

#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "io/clock.h"
#include "io/frame_channel.h"

namespace dt::launcher {

using Channel = std::shared_ptr<io::FrameChannel>;

/// One thread. The time comes in as an argument, but for send().
class SupervisorLink {
 public:
  /// `lonely_timeout`: how long it may take until the first supervisor attaches.
  SupervisorLink(Duration lonely_timeout, Time now)
      : lonely_timeout_(lonely_timeout), alone_since_(now) {}

  [[nodiscard]] bool is_attached() const { return channel_ != nullptr; }
  [[nodiscard]] const Channel& channel() const { return channel_; }
  [[nodiscard]] Term term() const { return term_; }
  /// After how long without a message it wants a Beat.
  [[nodiscard]] Duration beat() const { return beat_; }
  /// Time until a Beat is due, unless something else is sent before; not positive: it is due.
  [[nodiscard]] Duration until_beat(Time now) const { return said_at_ + beat_ - now; }

  /// Does nothing while none is attached.
  template <class Message>
  void send(const Message& message) {
    if (!channel_) return;
    channel_->send(message);
    said_at_ = io::steady_now();
  }

  /// Replaces the supervisor there was.
  void attach(Channel channel, const AgentHello& hello, Time now);
  /// Unless it was replaced.
  void detach(const Channel& channel, Time now);
  void close();

  /// A message of it has come.
  void on_message(Time now) { heard_at_ = now; }
  /// Its AgentHello has come again: from now on its silence means something.
  void on_hello_again() { repeats_hello_ = true; }
  /// Takes term and times.
  void apply(const AgentHello& hello);

  /// Detaches a supervisor that has been silent for too long. The timeout that has passed without
  /// any; none: it has not.
  [[nodiscard]] std::optional<Duration> expired_timeout(Time now);

 private:
  Channel channel_;
  Term term_;
  Duration lonely_timeout_;
  Duration orphan_timeout_ = std::chrono::seconds(300);
  Duration beat_ = std::chrono::milliseconds(250);
  bool was_attached_ = false;
  bool repeats_hello_ = false;
  Time said_at_;
  Time heard_at_;
  Time alone_since_;
};

}  // namespace dt::launcher
