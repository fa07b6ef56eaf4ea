#include <boost/asio/local/stream_protocol.hpp>
#include <csignal>
#include <cstdlib>
#include <functional>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

namespace {

/// A real ssh-agent with the server's user key, in SSH_AUTH_SOCK for its lifetime.
class Agent {
 public:
  explicit Agent(const Sshd& sshd) : socket_(sshd.dir() + "/agent.sock") {
    const std::string said = test::run_tool({"ssh-agent", "-a", socket_});
    const std::size_t at = said.find("SSH_AGENT_PID=");
    pid_ = std::stoi(said.substr(at + 14));
    ::setenv("SSH_AUTH_SOCK", socket_.c_str(), 1);
    test::run_tool({"ssh-add", "-q", sshd.user_key()});
  }
  ~Agent() {
    ::kill(pid_, SIGTERM);
    ::unsetenv("SSH_AUTH_SOCK");
  }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  [[nodiscard]] const std::string& socket() const { return socket_; }

 private:
  std::string socket_;
  pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("ssh: a wrong key is an authentication error that lists what was tried", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string wrong = sshd.dir() + "/wrong";
  const std::string locked = sshd.dir() + "/locked";
  test::run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", wrong});
  test::run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", locked});
  io::SshOptions options = sshd.options();
  options.identities = {wrong, locked};
  Client client(options);
  const auto result = client.run(sshd.host(), "true");
  REQUIRE_FALSE(result);
  INFO(result.error().message);
  CHECK(result.error().kind == ErrorKind::kDenied);
  CHECK(contains(result.error().message, "authentication: user "));
  CHECK(contains(result.error().message, "tried " + wrong + ";"));
  CHECK(contains(result.error().message, locked + " is encrypted"));
}

TEST_CASE("ssh: a key that only the ssh-agent holds is enough", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Agent agent(sshd);
  sshd.prepend_config("IdentityAgent " + agent.socket());
  io::SshOptions options = sshd.options();
  options.identities = {sshd.dir() + "/none"};
  {
    Client client(options);
    const auto result = client.run(sshd.host(), "echo in");
    INFO((result ? "" : result.error().message));
    REQUIRE(result);
    CHECK(result->out == "in\n");
  }
  // IdentitiesOnly keeps the agent's other keys out.
  sshd.prepend_config("IdentitiesOnly yes");
  Client client(options);
  CHECK_FALSE(client.run(sshd.host(), "true"));
  // ... but not a key whose public part is among the identities.
  options.identities = {sshd.dir() + "/copy"};
  test::write_file(sshd.dir() + "/copy", "not readable as a key");
  test::write_file(sshd.dir() + "/copy.pub", test::read_file(sshd.user_key() + ".pub"));
  Client chosen(options);
  CHECK(chosen.run(sshd.host(), "true"));
}

TEST_CASE("ssh: an ssh-agent that never answers costs its deadline, not the loop", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const std::string path = sshd.dir() + "/deaf.sock";
  io::asio::io_context other;
  const io::asio::local::stream_protocol::acceptor deaf(
      other, io::asio::local::stream_protocol::endpoint(path));
  sshd.prepend_config("IdentityAgent " + path);
  io::SshOptions options = sshd.options();
  options.identities = {sshd.dir() + "/none"};
  Client client(options, {}, {.handshake = 1s});
  int ticks = 0;
  io::asio::steady_timer timer(client.context);
  std::function<void()> tick = [&] {
    timer.expires_after(20ms);
    timer.async_wait([&](const boost::system::error_code& ec) {
      if (ec) return;
      ++ticks;
      tick();
    });
  };
  tick();
  const auto result = client.run(sshd.host(), "true");
  timer.cancel();
  REQUIRE_FALSE(result);
  CHECK(contains(result.error().message, "ssh-agent at " + path));
  CHECK(ticks > 10);
}

TEST_CASE("ssh: -A makes our ssh-agent answer on the host", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const Agent agent(sshd);
  io::SshOptions options = sshd.options();
  {
    Client client(options);
    const auto without = client.run(sshd.host(), "echo ${SSH_AUTH_SOCK:-none}");
    REQUIRE(without);
    CHECK(without->out == "none\n");
  }
  options.forward_agent = true;
  Client client(options);
  for (int i = 0; i < 2; ++i) {
    const auto listed = client.run(sshd.host(), "ssh-add -L");
    INFO((listed ? listed->err : listed.error().message));
    REQUIRE(listed);
    CHECK(contains(listed->out, test::read_file(sshd.user_key() + ".pub").substr(0, 60)));
  }
}

TEST_CASE("ssh: a key file that was named and is not there is said", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  io::SshOptions options = sshd.options();
  options.identities = {sshd.dir() + "/none"};
  Client client(options);
  const auto result = client.run(sshd.host(), "true");
  REQUIRE_FALSE(result);
  INFO(result.error().message);
  CHECK(contains(result.error().message, sshd.dir() + "/none does not exist"));
}
