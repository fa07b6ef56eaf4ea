#include "launcher/host_address.h"

#include "test/support/catch.h"

using namespace dt;
using namespace dt::launcher;

namespace {

/// What an agent says: where its ssh connection came in, and its interface's address.
AgentState says(std::string ssh, std::string interface) {
  AgentState state;
  state.ssh_address = std::move(ssh);
  state.interface_address = std::move(interface);
  return state;
}

/// Of a job whose hosts are all reached over ssh.
std::string host_address(const Host& host, const std::string& dialed, const AgentState& state) {
  return launcher::host_address(io::JobSpec(), host, dialed, state);
}

}  // namespace

TEST_CASE("host address: the host's own word comes before what was dialed, for that may be a NAT") {
  const Host host{"", "node7", 0};
  CHECK(host_address(host, "10.0.0.7", says("10.0.0.7", "10.0.0.7")) == "10.0.0.7");
  CHECK(host_address(host, "3.4.5.6", says("172.31.0.7", "172.31.0.7")) == "172.31.0.7");
  CHECK(host_address(host, "127.0.0.1", says("172.17.0.2", "172.17.0.2")) == "172.17.0.2");
  CHECK(host_address(host, "10.0.0.7", says("", "192.168.0.7")) == "10.0.0.7");
}

TEST_CASE("host address: hosts on loopback keep the address that was dialed") {
  CHECK(host_address({"", "127.0.0.5", 0}, "127.0.0.5", says("127.0.0.5", "10.0.0.1")) ==
        "127.0.0.5");
}

TEST_CASE("host address: behind a proxy no name need be known here") {
  const Host inner{"", "inner7", 0};
  CHECK(host_address(inner, "", says("10.9.0.7", "10.8.0.7")) == "10.9.0.7");
  // The proxy's last part runs on the host: what came in came from itself.
  CHECK(host_address(inner, "", says("127.0.0.1", "10.8.0.7")) == "10.8.0.7");
  CHECK(host_address(inner, "", says("::1", "10.8.0.7")) == "10.8.0.7");
  CHECK(host_address(inner, "", says("0.0.0.0", "10.8.0.7")) == "10.8.0.7");
  CHECK(host_address({"", "10.7.0.7", 0}, "", says("127.0.0.1", "10.8.0.7")) == "10.7.0.7");
  CHECK(host_address(inner, "", says("127.0.0.1", "")) == "127.0.0.1");
  CHECK(host_address(inner, "", says("", "")) == "inner7");
}

TEST_CASE("host address: a node has the address that its scheduler reaches it by") {
  io::JobSpec spec;
  const auto at = [&spec](const std::string& node, const AgentState& state) {
    spec.allocation = AllocatedNodes{StarterKind::kSlurm, "41", {{"n7", node}}};
    return launcher::host_address(spec, {"", "n7", 0}, "10.0.0.7", state);
  };
  // Each agent has inherited SSH_CONNECTION from the shell in which salloc was called.
  const AgentState state = says("10.0.0.1", "10.8.0.7");
  CHECK(at("10.9.0.7", state) == "10.9.0.7");
  CHECK(at("127.0.0.7", state) == "127.0.0.7");
  CHECK(at("n7-ib", state) == "10.8.0.7");
  CHECK(at("", state) == "10.8.0.7");
  CHECK(at("n7", says("", "")) == "n7");
}

TEST_CASE("host address: by the way on which the job reaches the host") {
  io::JobSpec spec;
  spec.allocation = AllocatedNodes{StarterKind::kSlurm, "41", {{"n7", "10.9.0.7"}}};
  const AgentState state = says("172.31.0.7", "10.8.0.7");
  Host over_ssh{"", "n7", 0};
  over_ssh.via = StarterKind::kSsh;
  const Host hosts[] = {{"", "n7", 0}, over_ssh, {"ann", "n7", 0}, {"", "n8", 0}};
  std::string found;
  for (const StarterKind launcher : {StarterKind::kSsh, StarterKind::kSlurm, StarterKind::kLocal}) {
    spec.launcher = launcher;
    for (const Host& host : hosts)
      found += launcher::host_address(spec, host, "10.0.0.7", state) + " ";
    found += "\n";
  }
  CHECK(found ==
        "10.9.0.7 172.31.0.7 172.31.0.7 172.31.0.7 \n"
        "10.9.0.7 172.31.0.7 172.31.0.7 172.31.0.7 \n"
        "10.0.0.7 10.0.0.7 10.0.0.7 10.0.0.7 \n");
}
