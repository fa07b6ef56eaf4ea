#include "launcher/agent/supervisor_link.h"

#include <algorithm>
#include <utility>

namespace dt::launcher {
namespace {

using namespace std::chrono_literals;

/// Bounds of what a supervisor asks for: its silence, too, is checked once a beat.
constexpr Duration kFastestBeat = 10ms;
constexpr Duration kSlowestBeat = 10s;

}  // namespace

void SupervisorLink::attach(Channel channel, const AgentHello& hello, Time now) {
  close();
  channel_ = std::move(channel);
  was_attached_ = true;
  repeats_hello_ = false;
  heard_at_ = now;
  apply(hello);
}

void SupervisorLink::detach(const Channel& channel, Time now) {
  if (channel != channel_) return;
  channel_.reset();
  alone_since_ = now;
}

void SupervisorLink::close() {
  if (channel_) channel_->close();
}

void SupervisorLink::apply(const AgentHello& hello) {
  term_ = hello.term;
  orphan_timeout_ = std::chrono::milliseconds(hello.orphan_timeout_ms);
  beat_ =
      std::clamp<Duration>(std::chrono::milliseconds(hello.beat_ms), kFastestBeat, kSlowestBeat);
}

std::optional<Duration> SupervisorLink::expired_timeout(Time now) {
  if (channel_ && repeats_hello_ && now - heard_at_ > orphan_timeout_) {
    close();
    channel_.reset();
    alone_since_ = heard_at_;
  }
  const Duration limit = was_attached_ ? orphan_timeout_ : lonely_timeout_;
  if (channel_ || now - alone_since_ < limit) return std::nullopt;
  return limit;
}

}  // namespace dt::launcher
