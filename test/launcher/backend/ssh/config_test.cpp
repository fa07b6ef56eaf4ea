#include "launcher/backend/ssh/config.h"

#include <filesystem>

#include "launcher/backend/bundle.h"
#include "launcher/shell_word.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;
using namespace std::chrono_literals;

namespace {

/// A config file.
struct Config {
  explicit Config(const std::string& text) { test::write_file(path, text); }
  [[nodiscard]] SshHostConfig lookup(std::string_view name) const {
    return read_ssh_config({path}, name, "");
  }
  test::TempDir dir;
  std::string path = dir / "config";
};

}  // namespace

TEST_CASE("ssh config: the first value wins, identities add up", "[ssh_config]") {
  const Config config(
      "Port 2200\n"
      "Host node*\n"
      "  Port 2300\n"
      "  User=alice\n"
      "  IdentityFile /keys/%r-%h\n"
      "Host *\n"
      "  User bob\n"
      "  IdentityFile \"/keys/with blank\" # comment\n"
      "  IdentitiesOnly yes\n");
  const auto node = config.lookup("node7");
  CHECK(node.port == 2200);
  CHECK(node.user == "alice");
  CHECK(node.identity_files == std::vector<std::string>{"/keys/alice-node7", "/keys/with blank"});
  CHECK(node.identities_only);
  CHECK(node.hostname == "node7");
  CHECK(config.lookup("other").user == "bob");
}

TEST_CASE("ssh config: negated patterns, Match host and Match all", "[ssh_config]") {
  const Config config(
      "Host *.lab !gate.lab\n"
      "  HostName %h.example.com\n"
      "  ForwardAgent yes\n"
      "Match host *.lab.example.com\n"
      "  Port 99\n"
      "Match user root\n"
      "  Port 77\n"
      "Match all\n"
      "  ServerAliveInterval 1m30\n"
      "  ServerAliveCountMax 4\n"
      "  HostKeyAlias everyone\n");
  const auto a = config.lookup("a.lab");
  CHECK(a.hostname == "a.lab.example.com");
  CHECK(a.forward_agent);
  CHECK(a.port == 99);
  CHECK(a.alive_interval == 90s);
  CHECK(a.alive_count_max == 4);
  CHECK(a.host_key_alias == "everyone");
  const auto gate = config.lookup("gate.lab");
  CHECK(gate.hostname == "gate.lab");
  CHECK_FALSE(gate.forward_agent);
  CHECK(gate.port == 0);
  const auto notes = config.lookup("a.lab").ignored;
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with(config.path + ":6: Match user root: "));
}

TEST_CASE("ssh config: keywords without effect are told for the hosts that use them",
          "[ssh_config]") {
  const Config config(
      "Host shared\n"
      "  ControlMaster auto\n"
      "  ControlPath ~/x\n"
      "Host *\n"
      "  ControlMaster no\n"
      "  AddressFamily any\n"
      "  CertificateFile ~/.ssh/cert\n");
  CHECK(config.lookup("other").ignored.size() == 1);
  const auto notes = config.lookup("shared").ignored;
  REQUIRE(notes.size() == 3);
  CHECK(notes[0] ==
        config.path +
            ":2: controlmaster is not supported: connections of our own are shared anyway");
}

TEST_CASE("ssh config: Include stands where it is written, inside its Host block", "[ssh_config]") {
  const test::TempDir dir;
  test::write_file(dir / "config", "Host inner\n  Include parts/*.conf\nHost *\n  Port 5\n");
  std::filesystem::create_directory(dir / "parts");
  test::write_file(dir / "parts/a.conf", "User included\nHost elsewhere\n  Port 1\n");
  test::write_file(dir / "parts/b.conf", "Port 3\n");
  const auto lookup = [&](const std::string& name) {
    return read_ssh_config({dir / "config", dir / "missing"}, name, "");
  };
  CHECK(lookup("inner").user == "included");
  CHECK(lookup("inner").port == 3);
  CHECK(lookup("elsewhere").user.empty());
  CHECK(lookup("elsewhere").port == 5);
}

TEST_CASE("ssh config: a file that includes itself ends", "[ssh_config]") {
  const test::TempDir dir;
  test::write_file(dir / "config", "Include config\nPort 4\n");
  CHECK(read_ssh_config({dir / "config"}, "x", "").port == 4);
}

TEST_CASE("ssh config: proxies, none, tokens", "[ssh_config]") {
  const Config config(
      "Host direct\n  ProxyJump none\n  ProxyCommand none\n"
      "Host *\n  ProxyJump a,b:22\n  ProxyCommand nc -x \"p q\" %h %p\n"
      "  UserKnownHostsFile /a /b\n  IdentityAgent /run/agent\n");
  CHECK(config.lookup("direct").proxy_jump.empty());
  CHECK(config.lookup("direct").proxy_command.empty());
  const auto far = config.lookup("far");
  CHECK(far.proxy_jump == "a,b:22");
  CHECK(far.proxy_command == "nc -x \"p q\" %h %p");
  CHECK(far.user_known_hosts == std::vector<std::string>{"/a", "/b"});
  CHECK(far.identity_agent == "/run/agent");
}

TEST_CASE("ssh config: brackets around a keyword are no end of an included file", "[ssh_config]") {
  const Config config("include) x\n(include y\nPort 2200\n");
  CHECK(config.lookup("node7").port == 2200);
}

TEST_CASE("ssh config: glob patterns", "[ssh_config]") {
  CHECK(glob_match("", ""));
  CHECK(glob_match("*", ""));
  CHECK_FALSE(glob_match("?", ""));
  CHECK(glob_match("a*b*c", "aXXbYYbZc"));
  CHECK_FALSE(glob_match("a*b*c", "aXXbYYbZ"));
  CHECK(glob_match("*.*.*", "1.2.3"));
  // Exponential in a naive matcher.
  CHECK_FALSE(glob_match("*a*a*a*a*a*a*a*a*a*a*a*b", std::string(5000, 'a')));
}

TEST_CASE("shell words and login commands", "[ssh_config]") {
  CHECK(shell_word("plain-1.2/x") == "plain-1.2/x");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("a'b") == "'a'\\''b'");
  CHECK(login_command("echo $x") == "exec /bin/sh -c 'echo $x'");
  // No quote, backslash, exclamation mark or newline of the script reaches the login shell.
  const std::string odd = login_command("it's\n!\\");
  CHECK(odd == "exec /bin/sh -c 'eval \"$(printf %b \"$1\")\"' sh 'it\\0047s\\0012\\0041\\0134'");
}

TEST_CASE("ssh config: StrictHostKeyChecking, and times of any length", "[ssh_config]") {
  const auto policy = [](const std::string& word) {
    return Config("StrictHostKeyChecking " + word).lookup("h").host_keys;
  };
  CHECK(policy("yes") == io::HostKeyPolicy::kStrict);
  CHECK(policy("ask") == io::HostKeyPolicy::kStrict);
  CHECK(policy("Accept-New") == io::HostKeyPolicy::kAcceptNew);
  CHECK(policy("no") == io::HostKeyPolicy::kOff);
  CHECK_FALSE(policy("perhaps"));
  const auto config = Config("ServerAliveInterval 999999999d").lookup("h");
  CHECK(config.alive_interval == std::chrono::hours(365 * 24));
}
