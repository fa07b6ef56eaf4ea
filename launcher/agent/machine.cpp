#include "launcher/agent/machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include "io/fd.h"
#include "io/process_state.h"
#include "io/read_file.h"
#include "io/subprocess.h"
#include "launcher/agent/cgroup.h"

namespace dt::launcher {
namespace {

/// Literal; empty for other families than IPv4 and IPv6.
std::string literal(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  return text;
}

struct InterfaceAddress {
  std::string interface;
  std::string text;
  bool is_loopback = false;
  int family = 0;
};

/// Of the interfaces that are up.
std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(first, ::freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
    std::string text = literal(one->ifa_addr);
    if (!text.empty())
      found.push_back({one->ifa_name, std::move(text), (one->ifa_flags & IFF_LOOPBACK) != 0,
                       one->ifa_addr->sa_family});
  }
  return found;
}

/// The source address of what leaves this machine; no packet is sent.
std::string outgoing_address() {
  const io::Fd fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  ::inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);  // a documentation network
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  const bool is_known =
      ::connect(fd.get(), generic, size) == 0 && ::getsockname(fd.get(), generic, &size) == 0;
  return is_known ? literal(generic) : std::string();
}

/// IPv4 before IPv6, that of the default route before all.
std::string interface_address(const std::vector<InterfaceAddress>& all) {
  if (std::string out = outgoing_address(); !out.empty()) return out;
  for (const int family : {AF_INET, AF_INET6})
    for (const InterfaceAddress& one : all)
      if (one.family == family && !one.is_loopback && !one.text.starts_with("fe80:"))
        return one.text;
  return {};
}

/// SSH_CONNECTION is "client port server port"; sshd set it if the server's address is one of ours
/// (a scheduler may have copied it from another machine). 127.0.0.0/8 is all ours.
std::string ssh_address(const std::vector<InterfaceAddress>& all) {
  std::istringstream words(io::variable("SSH_CONNECTION").value_or(""));
  std::string client, port, server;
  words >> client >> port >> server;
  const bool is_ours =
      server.starts_with("127.") || std::ranges::count(all, server, &InterfaceAddress::text) > 0;
  return is_ours ? server : std::string();
}

}  // namespace

std::string address_of_interface(const std::string& name) {
  const auto all = interface_addresses();
  for (const bool is_exact : {true, false})
    for (const int family : {AF_INET, AF_INET6})
      for (const InterfaceAddress& one : all)
        if (one.family == family &&
            (is_exact ? one.interface == name : one.interface.starts_with(name)))
          return one.text;
  return {};
}

AgentState this_machine() {
  AgentState state;
  state.boot_id = io::first_line("/proc/sys/kernel/random/boot_id");
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  // The same for "hosts" that are one machine.
  state.machine = fmt::format("{}/{}/{}", io::first_line("/etc/machine-id"), state.boot_id, host);
  const std::uint32_t cores = io::usable_cores();
  state.cores = std::min(cores, cpu_quota().value_or(cores));
  const std::vector<InterfaceAddress> addresses = interface_addresses();
  state.ssh_address = ssh_address(addresses);
  state.interface_address = interface_address(addresses);
  return state;
}

}  // namespace dt::launcher
