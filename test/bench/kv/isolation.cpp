#include "test/bench/kv/isolation.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "io/fd.h"
#include "io/subprocess.h"

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

io::Fd present_namespace() { return io::Fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)); }

Result<void> move_to(const io::Fd& name_space) {
  if (::setns(name_space.get(), CLONE_NEWNET) == 0) return {};
  return tl::unexpected(errno_error(errno, "enter a network namespace"));
}

Result<void> run_ip(const std::vector<std::string>& words) {
  std::vector<std::string> argv = {"ip"};
  argv.insert(argv.end(), words.begin(), words.end());
  auto child = io::Subprocess::start(argv, {0, 1, 2});
  if (!child) return tl::unexpected(child.error());
  if (child->wait().clean()) return {};
  return fail(ErrorKind::kUnavailable, "{} failed", fmt::join(argv, " "));
}

/// This process's end of the link.
Result<void> set_up(const std::string& device, const std::string& address) {
  auto done = run_ip({"addr", "add", address + "/24", "dev", device});
  if (done) done = run_ip({"link", "set", device, "up"});
  return done;
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

Result<std::shared_ptr<const ServerNetwork>> make_server_network() {
  const io::Fd workers = present_namespace();
  auto network = std::make_shared<ServerNetwork>();
  network->address = "10.78.0.2";
  if (::unshare(CLONE_NEWNET) != 0)
    return tl::unexpected(errno_error(errno, "--apart: a network namespace needs root"));
  network->name_space = present_namespace();
  (void)bring_loopback_up();
  std::ofstream(kCongestionControl) << "reno" << std::flush;
  auto done = move_to(workers);
  const auto path = fmt::format("/proc/{}/fd/{}", ::getpid(), network->name_space.get());
  if (done)
    done = run_ip(
        {"link", "add", "workers", "type", "veth", "peer", "name", "servers", "netns", path});
  if (done) done = set_up("workers", "10.78.0.1");
  if (done) done = move_to(network->name_space);
  if (done) {
    done = set_up("servers", network->address);
    const auto back = move_to(workers);
    if (done) done = back;
  }
  if (!done) return tl::unexpected(done.error().at("--apart"));
  return network;
}

Result<void> enter(const ServerNetwork& network) { return move_to(network.name_space); }

}  // namespace dt::bench
