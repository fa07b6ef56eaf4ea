#include "launcher/agent/mailbox.h"

#include <utility>

namespace dt::launcher {
namespace {

/// Types of message, and bytes of all bodies, kept for a process. They are part of every
/// AgentState, which has to fit into a frame.
constexpr std::size_t kMaxTypes = 64;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;

}  // namespace

void Mailbox::connect(Channel channel) {
  if (connection_) connection_->close();
  connection_ = std::move(channel);
  for (const auto& [type, body] : waiting_) connection_->send_bytes(wire::frame(type, body));
  waiting_.clear();
}

void Mailbox::disconnect(const Channel& channel) {
  if (connection_ == channel) connection_.reset();
}

void Mailbox::deliver(std::uint16_t type, const std::string& body) {
  if (connection_ && connection_->is_open())
    connection_->send_bytes(wire::frame(type, body));
  else
    waiting_[type] = body;
}

bool Mailbox::keep(wire::Frame frame) {
  if (sent_.size() >= kMaxTypes && !sent_.contains(frame.type)) return false;
  std::size_t bytes = frame.body.size();
  for (const auto& [type, body] : sent_) bytes += type == frame.type ? 0 : body.size();
  if (bytes > kMaxBytes) return false;
  sent_[frame.type] = std::move(frame.body);
  return true;
}

}  // namespace dt::launcher
