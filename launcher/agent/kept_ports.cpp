#include "launcher/agent/kept_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <fstream>
#include <random>

namespace dt::launcher {
namespace {

using boost::asio::ip::tcp;

constexpr std::uint32_t kFirst = 16384;
constexpr std::array kPorts = {Port::kMaster, Port::kRoot};

bool has(Port set, Port one) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

void share(const io::Fd& socket) {
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

std::uint16_t number_of(const io::Fd& socket) {
  tcp::endpoint address(tcp::v6(), 0);
  auto size = static_cast<socklen_t>(address.capacity());
  return ::getsockname(socket.get(), address.data(), &size) == 0 ? address.port() : 0;
}

/// Bound to `number`, or to any if that is 0; none if it is taken. `is_known`: connections of a
/// program that had it may linger.
io::Fd take_port(std::uint16_t number, bool is_known) {
  for (const bool is_ipv6 : {true, false}) {
    io::Fd socket(::socket(is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket) continue;
    const int off = 0;
    if (is_ipv6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (is_known) share(socket);
    const tcp::endpoint any(is_ipv6 ? tcp::v6() : tcp::v4(), number);
    if (::bind(socket.get(), any.data(), static_cast<socklen_t>(any.size())) == 0) {
      // Only after the bind: two sockets with SO_REUSEADDR that do not listen may bind one port,
      // and another agent must not. A program with SO_REUSEADDR may listen there from now on.
      share(socket);
      return socket;
    }
    if (errno == EADDRINUSE) return {};
  }
  return {};
}

}  // namespace

PortRange ports_to_keep() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  std::uint32_t floor = 0;
  if (!(file >> floor) || floor <= kFirst || floor > 65536) return {kFirst, kFirst};
  return {kFirst, floor};
}

KeptPorts::KeptPorts(PortRange range) : range_(range) {
  for (Kept& kept : kept_) take(kept);
}

void KeptPorts::take(Kept& kept) {
  const std::uint32_t size = range_.end - range_.first;
  const std::uint32_t start = size == 0 ? 0 : std::random_device{}() % size;
  for (std::uint32_t i = 0; i < size; ++i) {
    kept.number = static_cast<std::uint16_t>(range_.first + (start + i) % size);
    if (used_.contains(kept.number)) continue;
    kept.socket = take_port(kept.number, false);
    if (kept.socket) return;
  }
  constexpr int kTries = 16;
  for (int i = 0; i < kTries; ++i) {
    kept.socket = take_port(0, false);
    kept.number = kept.socket ? number_of(kept.socket) : 0;
    if (!used_.contains(kept.number)) return;
  }
}

void KeptPorts::give(Port which) {
  for (std::size_t i = 0; i < kept_.size(); ++i)
    if (has(which, kPorts[i])) kept_[i].socket = {};
}

bool KeptPorts::take_again(Port which) {
  bool changed = false;
  const bool is_once = has(which, Port::kOnce);
  for (std::size_t i = 0; i < kept_.size(); ++i)
    if (is_once && has(which, kPorts[i]) && !kept_[i].socket) used_.insert(kept_[i].number);
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    Kept& kept = kept_[i];
    if (!has(which, kPorts[i]) || kept.socket) continue;
    const std::uint16_t before = kept.number;
    if (before != 0 && !is_once) kept.socket = take_port(before, true);
    if (!kept.socket) take(kept);
    changed = changed || kept.number != before;
  }
  return changed;
}

}  // namespace dt::launcher
