#include "launcher/host_address.h"

#include <boost/asio/ip/address.hpp>

#include "core/launch/ways.h"

namespace dt::launcher {
namespace {

bool is_literal(const std::string& text) {
  boost::system::error_code ec;
  boost::asio::ip::make_address(text, ec);
  return !ec;
}

/// A literal address that leads to one host only.
bool is_outer(const std::string& text) {
  boost::system::error_code ec;
  const auto address = boost::asio::ip::make_address(text, ec);
  return !ec && !address.is_loopback() && !address.is_unspecified();
}

/// Of a node that its scheduler reaches by `node.address`: what its agent says of ssh is of the
/// shell that made the allocation.
std::string node_address(const AllocatedNode& node, const AgentState& state) {
  if (is_literal(node.address)) return node.address;
  return state.interface_address.empty() ? node.name : state.interface_address;
}

}  // namespace

std::string host_address(const io::JobSpec& spec, const Host& host, const std::string& dialed,
                         const AgentState& state) {
  if (io::is_local(spec)) return dialed;
  const AllocatedNode* node = node_of(host, spec.allocation);
  if (node && io::way_to(spec, host) == spec.allocation->kind) return node_address(*node, state);
  // What was dialed may be another's address (NAT, a forwarded port); sshd's word is the host's
  // own.
  if (is_outer(state.ssh_address)) return state.ssh_address;
  if (!dialed.empty()) return dialed;
  // The proxy ends on the host itself: its connection came from there.
  if (is_outer(host.name)) return host.name;
  if (!state.interface_address.empty()) return state.interface_address;
  return state.ssh_address.empty() ? host.name : state.ssh_address;
}

}  // namespace dt::launcher
