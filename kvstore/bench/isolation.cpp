#include "kvstore/bench/isolation.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "io/fd.h"

namespace dt::bench {

namespace {

// The files under /proc/sys/net belong to the namespace of the process that opens them.
constexpr const char* kCongestionControl = "/proc/sys/net/ipv4/tcp_congestion_control";

bool bring_loopback_up() {
  const io::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  if (!socket || ::ioctl(socket.get(), SIOCGIFFLAGS, &request) != 0) return false;
  request.ifr_flags = static_cast<short>(request.ifr_flags | IFF_UP);
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

}  // namespace

std::string congestion_control() {
  std::ifstream file(kCongestionControl);
  std::string name;
  file >> name;
  return name.empty() ? "unknown" : name;
}

std::string isolate_network() {
  const std::string before = congestion_control();
  const io::Fd host(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::unshare(CLONE_NEWNET) != 0)
    return fmt::format("{} (a network namespace with reno needs root: {})", before,
                       std::strerror(errno));
  if (!bring_loopback_up()) {
    (void)::setns(host.get(), CLONE_NEWNET);
    return fmt::format("{} (no loopback in a new network namespace)", before);
  }
  std::ofstream file(kCongestionControl);
  file << "reno" << std::flush;
  const std::string now = congestion_control();
  if (now != "reno") return fmt::format("{} (it cannot be set to reno here)", now);
  return "reno, in a network namespace of its own";
}

}  // namespace dt::bench
