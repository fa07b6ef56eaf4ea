#include "launcher/agent/kept_ports.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <vector>

#include "test/support/catch.h"

using namespace dt;
using namespace dt::launcher;

namespace {

/// A program's own socket on the port, as it would listen there; -1: it cannot.
io::Fd listen_on(std::uint16_t port, bool shares) {
  io::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (shares) ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0) return {};
  if (::listen(socket.get(), 1) != 0) return {};
  return socket;
}

/// `count` consecutive ports that are free at this moment.
PortRange free_ports(std::uint32_t count) {
  for (std::uint32_t first = 16384;; first += count) {
    REQUIRE(first + count < 32768);
    std::uint32_t port = first;
    while (port < first + count && listen_on(static_cast<std::uint16_t>(port), false)) ++port;
    if (port == first + count) return {first, first + count};
  }
}

bool is_in(PortRange range, std::uint16_t port) { return port >= range.first && port < range.end; }

}  // namespace

TEST_CASE("kept ports: below what the kernel gives to connections", "[kept_ports]") {
  const PortRange range = ports_to_keep();
  CHECK(range.first == 16384);
  CHECK(range.end <= 65536);
  if (range.end == range.first) return;  // this machine's ephemeral ports leave none
  const KeptPorts ports(range);
  CHECK(is_in(range, ports.master()));
  CHECK(is_in(range, ports.root()));
  CHECK(ports.master() != ports.root());
}

TEST_CASE("kept ports: agents of one machine never have the same, until none is left",
          "[kept_ports]") {
  const PortRange range = free_ports(8);
  std::vector<std::unique_ptr<KeptPorts>> agents;
  std::set<std::uint16_t> numbers;
  for (int i = 0; i < 4; ++i) {
    agents.push_back(std::make_unique<KeptPorts>(range));
    numbers.insert({agents.back()->master(), agents.back()->root()});
    CHECK(is_in(range, agents.back()->master()));
  }
  CHECK(numbers.size() == 8);
  const KeptPorts late(range);  // the kernel chooses ports when none is left
  CHECK(late.master() != 0);
  CHECK_FALSE(is_in(range, late.master()));
  CHECK(late.root() != late.master());
}

TEST_CASE("kept ports: a port is nobody's until it is given, and then its program's",
          "[kept_ports]") {
  KeptPorts ports(free_ports(2));
  const std::uint16_t port = ports.master();
  CHECK_FALSE(listen_on(port, false));
  CHECK(listen_on(port, true));  // a program may listen before the agent has closed it
  ports.give(Port::kMaster);
  {
    const io::Fd program = listen_on(port, false);
    CHECK(program);
    CHECK_FALSE(listen_on(ports.root(), false));  // the other one is still kept
    SECTION("a program that is gone leaves it to the next one") {}
    SECTION("one that stays has it: there is another") {
      CHECK(ports.take_again(Port::kBoth));
      CHECK(ports.master() != port);
      CHECK(ports.master() != 0);
      return;
    }
  }
  CHECK_FALSE(ports.take_again(Port::kBoth));
  CHECK(ports.master() == port);
  CHECK_FALSE(listen_on(port, false));
}

TEST_CASE("kept ports: a number that is for once does not come back", "[kept_ports]") {
  KeptPorts ports(free_ports(8));
  std::set<std::uint16_t> seen{ports.master(), ports.root()};
  for (std::size_t turn = 2; turn <= 4; ++turn) {
    ports.give(Port::kBothOnce);
    CHECK(ports.take_again(Port::kBothOnce));
    seen.insert({ports.master(), ports.root()});
    CHECK(seen.size() == 2 * turn);
  }
}
