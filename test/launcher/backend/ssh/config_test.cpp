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
      "  CertificateFile /certs/%r\n"
      "Host *\n"
      "  User bob\n"
      "  CertificateFile /certs/all\n"
      "  IdentityFile \"/keys/with blank\" # comment\n"
      "  IdentitiesOnly yes\n");
  const auto node = config.lookup("node7");
  CHECK(node.port == 2200);
  CHECK(node.user == "alice");
  CHECK(node.identity_files == std::vector<std::string>{"/keys/alice-node7", "/keys/with blank"});
  CHECK(node.certificate_files == std::vector<std::string>{"/certs/alice", "/certs/all"});
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
}

TEST_CASE("ssh config: a Match block of several criteria needs all of them", "[ssh_config]") {
  const auto applies = [](const std::string& criteria, std::string_view user = "") {
    const Config config("Host alias\n  HostName 10.0.0.7\nMatch " + criteria + "\n  Port 99\n");
    const auto found = read_ssh_config({config.path}, "alias", user);
    CHECK(found.undecided.empty());
    return found.port == 99;
  };
  CHECK(applies("originalhost alias,other"));
  CHECK(applies("host 10.0.0.*"));
  CHECK(applies("host=10.0.0.*"));
  CHECK_FALSE(applies("host alias"));
  CHECK(applies("!host alias user root originalhost a*", "root"));
  CHECK_FALSE(applies("!host alias user root originalhost b*", "root"));
  CHECK(applies("user carol", "carol"));
  CHECK_FALSE(applies("user carol", "bob"));
  CHECK_FALSE(applies("!user carol", "carol"));
  CHECK(applies("localuser " + own_user_name()));
  CHECK_FALSE(applies("!all"));
  // One that does not hold decides, whatever the probe would say.
  CHECK_FALSE(applies("host b exec \"probe user host\""));
  CHECK_FALSE(applies("exec probe !originalhost alias"));
}

TEST_CASE("ssh config: a block that only OpenSSH can decide is named", "[ssh_config]") {
  const auto undecided = [](const std::string& criteria) {
    const Config config("Port 1\nMatch " + criteria + "\n  User x\n");
    return config.lookup("a").undecided == config.path + ":2: Match " + criteria;
  };
  CHECK(undecided("exec \"test -e /x\""));
  CHECK(undecided("host a exec true"));
  CHECK(undecided("localnetwork 10.0.0.0/8"));
  CHECK(undecided("tagged lab"));
  CHECK(undecided("canonical host b"));
  CHECK(undecided("final all"));
  CHECK(undecided("something-new x"));
}

TEST_CASE("ssh config: the answer of ssh -G counts, but not what it prints by default",
          "[ssh_config]") {
  const std::string defaults =
      "host nothing-configured\nuser me\nhostname nothing-configured\nport 22\nciphers a,b\n"
      "stricthostkeychecking ask\nidentityfile ~/.ssh/id_rsa\nidentityfile ~/.ssh/id_ed25519\n"
      "userknownhostsfile /h/.ssh/known_hosts /h/.ssh/known_hosts2\nserveraliveinterval 0\n";
  const std::string answer =
      "host node7\nuser alice\nhostname 10.0.0.7\nport 2200\nciphers a,b\nmacs m,n\n"
      "stricthostkeychecking ask\nidentityfile /keys/with blank\nidentityfile ~/.ssh/id_rsa\n"
      "userknownhostsfile /h/.ssh/known_hosts /h/.ssh/known_hosts2\nserveraliveinterval 7\n"
      "proxycommand nc -x \"p q\" %h %p\nsendenv LANG\n";
  SshHostConfig from_files;
  from_files.ignored = {"config:1: a note"};
  const auto config = read_openssh_answer(answer, defaults, "node7", "", 0, from_files);
  CHECK(config.hostname == "10.0.0.7");
  CHECK(config.user == "alice");
  CHECK(config.port == 2200);
  CHECK(config.ciphers.empty());
  CHECK(config.macs == "m,n");
  CHECK(config.alive_interval == 7s);
  CHECK(config.proxy_command == "nc -x \"p q\" 10.0.0.7 2200");
  CHECK(config.proxy_written == "nc -x \"p q\" %h %p");
  CHECK(config.user_known_hosts.empty());
  REQUIRE(config.identity_files.size() == 2);
  CHECK(config.identity_files[0] == "/keys/with blank");
  CHECK(config.ignored == from_files.ignored);
  CHECK_FALSE(config.host_keys);
  from_files.asks_somewhere = true;
  CHECK(read_openssh_answer(answer, defaults, "node7", "", 0, from_files).host_keys ==
        io::HostKeyPolicy::kStrict);
  CHECK(read_openssh_answer(defaults, defaults, "x", "", 0, from_files).identity_files.empty());
}

TEST_CASE("ssh config: the algorithms of a host's own block", "[ssh_config]") {
  const Config config(
      "Host alias\n  HostName 10.0.0.7\n  Ciphers aes128-ctr\n  MACs +hmac-sha1\n"
      "  KexAlgorithms ^ecdh-sha2-nistp256\n  HostKeyAlgorithms -ssh-rsa*\n"
      "  PubkeyAcceptedKeyTypes rsa-sha2-512\n  Compression yes\n  RekeyLimit 2M 1h\n"
      "Host 10.*\n  Ciphers aes256-ctr\n");
  const auto found = config.lookup("alias");
  CHECK(found.ciphers == "aes128-ctr");
  CHECK(found.macs == "+hmac-sha1");
  CHECK(found.key_exchange == "^ecdh-sha2-nistp256");
  CHECK(found.host_key_types == "-ssh-rsa*");
  CHECK(found.user_key_types == "rsa-sha2-512");
  CHECK(found.compression);
  CHECK(found.rekey_bytes == std::uint64_t{2} << 20);
  CHECK(found.rekey_time == 1h);
  CHECK(choose_algorithms("", "a,b").empty());
  CHECK(choose_algorithms("x,y", "a,b") == "x,y");
  CHECK(choose_algorithms("+b,c", "a,b") == "a,b,c");
  CHECK(choose_algorithms("^b,c", "a,b") == "b,c,a");
  CHECK(choose_algorithms("-a*,x", "a1,a2,b") == "b");
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
      "  SetEnv A=b\n");
  CHECK(config.lookup("other").ignored.size() == 1);
  const auto notes = config.lookup("shared").ignored;
  REQUIRE(notes.size() == 3);
  CHECK(notes[0] ==
        config.path +
            ":2: controlmaster is not supported: connections of our own are shared anyway");
}

TEST_CASE("ssh config: Include stands where it is written, inside its Host block", "[ssh_config]") {
  const test::TempDir dir;
  test::write_file(dir / "config",
                   "Host inner\n  Include " + (dir / "parts/*.conf") + "\nHost *\n  Port 5\n");
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

TEST_CASE("ssh config: what OpenSSH refuses is refused with its place", "[ssh_config]") {
  const test::TempDir dir;
  const std::string file = dir / "config";
  const auto refused = [&](const std::string& text) {
    test::write_file(file, text);
    return read_ssh_config({file}, "x", "").refused;
  };
  const std::string itself = refused("Include " + file + "\nPort 4\n");
  CHECK(itself == file + ":1: include: more than 16 deep");
  CHECK(refused("Host y\nPort 22x\n") == file + ":2: port: 22x is no value of it");
  CHECK(refused("Host y\n\"Ciphers\"=aes128-ctr\n") ==
        file + ":2: ciphers: =aes128-ctr is no value of it");
  CHECK(refused("Host y\n\"SendEnv\"=LANG\n") == file + ":2: sendenv: =LANG is no variable of it");
  CHECK(refused("SetEnv A=b C") == file + ":1: setenv: C is no variable of it");
  CHECK(refused("SetEnv A=b C=\nSendEnv LC_* X\n").empty());
  CHECK(refused("LocalForward # none") == file + ":1: localforward: a value is missing");
  CHECK(refused("User 'a\n") == file + ":1: user: a quote (') is not closed");
  CHECK(refused("UserKnownHostsFile /k/%j") ==
        file + ":1: /k/%j: %j is not known here: %% and %C %L %d %h %i %k %l %n %p %r %u are");
  CHECK(refused("IdentityFile ${DT_NOT_SET}/k") ==
        file + ":1: ${DT_NOT_SET}/k: the variable DT_NOT_SET is not set");
  CHECK(refused("Host y\nIdentityFile ${DT_NOT_SET}/k").empty());
  CHECK(refused("Host y\nIdentityAgent ${DT_NOT_SET}/k") ==
        file + ":2: identityagent: the variable DT_NOT_SET is not set");
  CHECK(refused("ProxyJump a\nIdentityFile /k/%C").find("differs between versions") !=
        std::string::npos);
  CHECK(refused("SomethingNew 1 2 3\n").empty());
  test::write_file(dir / "open", "Port 4\n", 0666);
  CHECK(refused("Include " + (dir / "open")) ==
        (dir / "open") + ": it is another user's, or others can write it (chmod go-w)");
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
  CHECK(far.proxy_command.empty());  // the first of the two wins
  const Config command("ProxyCommand nc -x \"p q\" %h %p\nProxyJump a\n");
  CHECK(command.lookup("far").proxy_command == "nc -x \"p q\" far 22");
  CHECK(command.lookup("far").proxy_jump.empty());
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
  CHECK_FALSE(Config("ServerAliveInterval 999999999d").lookup("h").refused.empty());
  const auto config = Config("ServerAliveInterval 500d").lookup("h");
  CHECK(config.alive_interval == std::chrono::hours(365 * 24));
}
