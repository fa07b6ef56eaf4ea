#include "launcher/backend/ssh/auth.h"

#include <boost/asio/local/stream_protocol.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>

#include "launcher/backend/ssh/config.h"
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
  options.identities = {wrong, wrong, locked};
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

TEST_CASE("ssh: an IdentityFile that names a public key means the ssh-agent's key", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Agent agent(sshd);
  const std::string folder = sshd.dir();
  test::write_file(folder + "/shown", test::read_file(sshd.user_key() + ".pub"));
  test::write_file(folder + "/beside.pub", test::read_file(sshd.user_key() + ".pub"));
  for (const char* name : {"/shown", "/beside"}) {
    io::SshOptions options = sshd.options();
    options.identities = {folder + name};
    sshd.prepend_config("IdentitiesOnly yes\nIdentityAgent " + agent.socket());
    const auto in = Client(options).run(sshd.host(), "true");
    INFO(name << ": " << (in ? "" : in.error().message));
    CHECK(in);
    sshd.prepend_config("IdentityAgent none");
    const auto alone = Client(options).run(sshd.host(), "true");
    REQUIRE_FALSE(alone);
    INFO(alone.error().message);
    CHECK(contains(alone.error().message, "tried nothing; not usable: " + folder + name +
                                              " names a public key, and no ssh-agent holds"));
  }
}

TEST_CASE("ssh: after too many keys only those that were shown are listed", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd({.max_startups = "1000", .max_sessions = "10", .more = {"MaxAuthTries 2"}});
  const Agent agent(sshd);
  test::run_tool({"ssh-add", "-q", "-D"});
  for (const char* name : {"k1", "k2", "k3"}) {
    const std::string file = sshd.dir() + "/" + name;
    test::run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file});
    test::run_tool({"ssh-add", "-q", file});
  }
  sshd.prepend_config("IdentityAgent " + agent.socket() + "\nIdentityFile none");
  io::SshOptions options = sshd.options();
  options.identities.clear();
  const auto refused = Client(options).run(sshd.host(), "true");
  REQUIRE_FALSE(refused);
  INFO(refused.error().message);
  CHECK(contains(refused.error().message, "tried agent key 'k1', agent key 'k2' ("));
  CHECK(contains(refused.error().message, "IdentitiesOnly yes"));
}

TEST_CASE("ssh: with nothing to try the server's methods are told", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  io::SshOptions options = sshd.options();
  options.identities = {sshd.dir() + "/none"};
  const auto refused = Client(options).run(sshd.host(), "true");
  REQUIRE_FALSE(refused);
  INFO(refused.error().message);
  CHECK(contains(refused.error().message, "; the server takes publickey: put a key there"));
  CHECK(contains(refused.error().message, "ssh-copy-id -p " + std::to_string(sshd.port()) + " "));
}

TEST_CASE("ssh: a refused login names its remedy", "[ssh]") {
  Refusal refusal;
  refusal.user = "ann";
  refusal.copy_words = "ann@h1";
  CHECK(refusal_error(refusal).message ==
        "user ann was refused; tried nothing: put a key there (ssh-keygen, then ssh-copy-id "
        "ann@h1)");
  refusal.methods = {"publickey", "gssapi-with-mic"};
  CHECK(refusal_error(refusal).message ==
        "user ann was refused; tried nothing; the server takes publickey, gssapi-with-mic: put a "
        "key there (ssh-keygen, then ssh-copy-id ann@h1), or let OpenSSH's client log in: --rsh "
        "'ssh {host} {command}'");
  refusal.methods = {"hostbased"};
  CHECK(contains(refusal_error(refusal).message, "takes hostbased: let OpenSSH's client log in: "));
  refusal.methods = {"password"};
  CHECK(contains(refusal_error(refusal).message, "takes password: let it take keys"));
  refusal.tried = {"/k"};
  refusal.methods.clear();
  CHECK(refusal_error(refusal).message ==
        "user ann was refused; tried /k: is the public key in that user's ~/.ssh/authorized_keys "
        "there?");
  refusal.ended = "Too many authentication failures";
  CHECK(contains(refusal_error(refusal).message, "tried /k (Too many authentication failures): "));
  CHECK(contains(refusal_error(refusal).message, "IdentitiesOnly yes"));
  CHECK_FALSE(contains(refusal_error(refusal).message, "authorized_keys"));
}

TEST_CASE("ssh: a key of a file is not offered again from the ssh-agent", "[ssh]") {
  NEEDS_SSHD();
  const Sshd owner;
  Sshd sshd;
  const Agent agent(owner);
  sshd.prepend_config("IdentityAgent " + agent.socket());
  io::SshOptions options = sshd.options();
  options.identities = {owner.user_key()};
  const auto refused = Client(options).run(sshd.host(), "true");
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().message, "tried " + owner.user_key() + ": is the public key"));
  CHECK(count(sshd.log(), "Failed publickey") == 1);
}

TEST_CASE("ssh: a server that wants more than a key is said", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "1000",
                   .max_sessions = "10",
                   .more = {"AuthenticationMethods publickey,publickey"}});
  const auto refused = Client(sshd.options()).run(sshd.host(), "true");
  REQUIRE_FALSE(refused);
  CHECK(contains(refused.error().message, "a key was accepted for user "));
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
  // The ssh-agent gets 6 s of it, the key exchange of a busy machine the rest.
  Client client(options, {}, {.handshake = 8s});
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

namespace {

/// An authority that an sshd trusts, and user keys that it certifies.
class Authority {
 public:
  Authority() {
    test::run_tool({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder_ / "ca"});
  }
  [[nodiscard]] SshdOptions trusted() const {
    return {.max_startups = "1000",
            .max_sessions = "10",
            .more = {"TrustedUserCAKeys " + (folder_ / "ca.pub")}};
  }
  /// A key file, with its certificate beside it.
  [[nodiscard]] std::string key(const std::string& type, const std::string& principal) const {
    const std::string file = folder_ / type + "-" + principal;
    test::run_tool({"ssh-keygen", "-q", "-t", type, "-N", "", "-f", file});
    test::run_tool(
        {"ssh-keygen", "-q", "-s", folder_ / "ca", "-I", "me", "-n", principal, file + ".pub"});
    return file;
  }
  [[nodiscard]] const test::TempDir& folder() const { return folder_; }

 private:
  test::TempDir folder_;
};

}  // namespace

TEST_CASE("ssh: a certificate beside its key logs in", "[ssh]") {
  NEEDS_SSHD();
  const Authority authority;
  const Sshd sshd(authority.trusted());
  for (const char* type : {"ed25519", "ecdsa", "rsa"}) {
    io::SshOptions options = sshd.options();
    options.identities = {authority.key(type, own_user_name())};
    Client client(options);
    const auto in = client.run(sshd.host(), "true");
    INFO((in ? "" : in.error().message));
    CHECK(in);
  }
  CHECK(count(sshd.log(), "-CERT") >= 3);
}

TEST_CASE("ssh: CertificateFile goes with the key file or the agent's key that it certifies",
          "[ssh]") {
  NEEDS_SSHD();
  const Authority authority;
  Sshd sshd(authority.trusted());
  const std::string key = authority.key("ed25519", own_user_name());
  const std::string moved = authority.folder() / "moved";
  std::filesystem::rename(key + "-cert.pub", moved);
  io::SshOptions options = sshd.options();
  options.identities = {key};
  CHECK_FALSE(Client(options).run(sshd.host(), "true"));
  sshd.prepend_config("CertificateFile " + moved);
  CHECK(Client(options).run(sshd.host(), "true"));
  // Only the agent has the private key, and it knows nothing of the certificate.
  const Agent agent(sshd);
  test::run_tool({"ssh-add", "-q", "-D"});
  test::run_tool({"ssh-add", "-q", key});
  std::filesystem::rename(key, key + ".away");
  sshd.prepend_config("IdentitiesOnly yes\nIdentityAgent " + agent.socket());
  Client client(options);
  const auto in = client.run(sshd.host(), "true");
  INFO((in ? "" : in.error().message));
  CHECK(in);
}

TEST_CASE("ssh: a certificate that is refused, or goes with no key, is named", "[ssh]") {
  NEEDS_SSHD();
  const Authority authority;
  Sshd sshd(authority.trusted());
  const std::string key = authority.key("ed25519", "somebody-else");
  const std::string other = authority.key("ecdsa", "somebody-else");
  io::SshOptions options = sshd.options();
  options.identities = {key};
  const auto refused = Client(options).run(sshd.host(), "true");
  REQUIRE_FALSE(refused);
  INFO(refused.error().message);
  CHECK(contains(refused.error().message, fmt::format("tried {0}-cert.pub, {0}:", key)));
  CHECK(contains(refused.error().message, "ssh-keygen -L -f " + key + "-cert.pub"));
  sshd.prepend_config(
      fmt::format("CertificateFile {}-cert.pub\nCertificateFile /none-cert.pub", other));
  const auto unused = Client(options).run(sshd.host(), "true");
  REQUIRE_FALSE(unused);
  INFO(unused.error().message);
  CHECK(contains(unused.error().message, other + "-cert.pub belongs to none of these keys"));
  CHECK(contains(unused.error().message, "/none-cert.pub does not exist"));
  // As with ssh: those that are named replace the one beside the key.
  CHECK(contains(unused.error().message, "tried " + key + ";"));
}
