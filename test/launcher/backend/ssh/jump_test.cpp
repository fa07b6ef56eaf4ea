#include "launcher/backend/ssh/jump.h"

#include <boost/asio/ip/tcp.hpp>
#include <csignal>
#include <cstdlib>

#include "launcher/backend/ssh/config.h"
#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

namespace {

/// A config with which 127.0.1.* of `target` are behind `jumps`, whose keys are given.
std::string behind(const std::string& jumps, const std::vector<const Sshd*>& keys,
                   const std::string& more = "") {
  std::string text = fmt::format("Host 127.0.1.*\n  ProxyJump {}\n{}Host *\n", jumps, more);
  for (const Sshd* one : keys) text += "  IdentityFile " + one->user_key() + "\n";
  return text;
}

std::string jump(const Sshd& sshd) { return fmt::format("127.0.0.1:{}", sshd.port()); }

Host inner(const Sshd& sshd, int last) {
  return {"", fmt::format("127.0.1.{}", last), sshd.port()};
}

std::size_t logins(const Sshd& sshd) { return count(sshd.log(), "Accepted publickey"); }

}  // namespace

TEST_CASE("ssh jump: what ProxyJump names", "[ssh]") {
  const auto parts = [](const std::string& text) {
    const auto host = parse_jump(text);
    return host ? fmt::format("{}|{}|{}", host->user, host->name, host->port)
                : host.error().message;
  };
  CHECK(parts("gate") == "|gate|0");
  CHECK(parts("ann@gate:2222") == "ann|gate|2222");
  CHECK(parts("ssh://ann@gate:22") == "ann|gate|22");
  CHECK(parts("[fe80::1]:22") == "|fe80::1|22");
  CHECK(parts("fe80::1") == "|fe80::1|0");
  CHECK(parts("gate:none") == "ProxyJump gate:none: the port is no number up to 65535");
  CHECK(parts("ann@") == "ProxyJump ann@: it names no host");
}

TEST_CASE("ssh jump: all hosts behind a jump host share one connection to it", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  // Neither its limit of sessions nor that of connections counts.
  const Sshd bastion({.max_startups = "2", .max_sessions = "0", .more = {}});
  sshd.prepend_config(behind(jump(bastion), {&bastion}));
  Client client(sshd.options());
  int good = 0;
  std::string problems;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    auto result =
        co_await launcher::run_command(*client.backend.exec(inner(sshd, i)), inner(sshd, i),
                                       "sleep 1; echo $SSH_CONNECTION", "", 40s);
    if (result && contains(result->out, fmt::format("127.0.1.{}", i)))
      ++good;
    else
      problems += (result ? result->out : result.error().message) + "\n";
  };
  for (int i = 1; i <= 20; ++i) group.spawn(one(i));
  client.finish(group);
  INFO(problems);
  CHECK(good == 20);
  CHECK(logins(bastion) == 1);
  CHECK(logins(sshd) == 20);
}

TEST_CASE("ssh jump: bytes pass in both directions however slowly they are taken", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  sshd.prepend_config(behind(jump(bastion), {&bastion}));
  Client client(sshd.options());
  const std::string bytes = noise(std::size_t{6} << 20);
  const std::string file = sshd.dir() + "/bytes";
  REQUIRE(client.run(inner(sshd, 1), "cat > " + file, bytes));
  CHECK(read_file(file) == bytes);
  const auto back = client.run(inner(sshd, 1), "cat " + file);
  REQUIRE(back);
  CHECK(back->out == bytes);
  // More than all buffers hold: the rest waits, and all of it comes in the end.
  auto stream = client.wait(launcher::start_command(*client.backend.exec(inner(sshd, 2)),
                                                    inner(sshd, 2), "head -c 9000000 /dev/zero"));
  REQUIRE(stream);
  REQUIRE(client.run(inner(sshd, 1), "sleep 1"));
  const auto all = client.wait(read_all(**stream));
  REQUIRE(all);
  CHECK(all->size() == 9'000'000);
}

TEST_CASE("ssh jump: a chain of jump hosts, and the ssh-agent forwarded through it", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd first;
  const Sshd second;
  sshd.prepend_config(behind(jump(first) + "," + jump(second), {&first, &second}));
  const std::string socket = sshd.dir() + "/agent.sock";
  const std::string said = run_tool({"ssh-agent", "-a", socket});
  const pid_t agent = std::stoi(said.substr(said.find("SSH_AGENT_PID=") + 14));
  ::setenv("SSH_AUTH_SOCK", socket.c_str(), 1);
  run_tool({"ssh-add", "-q", sshd.user_key()});
  io::SshOptions options = sshd.options();
  options.forward_agent = true;
  Client client(options);
  for (int i = 1; i <= 2; ++i) {
    const auto listed = client.run(inner(sshd, i), "ssh-add -L");
    INFO((listed ? listed->err : listed.error().message));
    CHECK((listed && contains(listed->out, read_file(sshd.user_key() + ".pub").substr(0, 60))));
  }
  ::kill(agent, SIGTERM);
  ::unsetenv("SSH_AUTH_SOCK");
  CHECK(logins(first) == 1);
  CHECK(logins(second) == 1);
}

TEST_CASE("ssh jump: a lost jump host ends the links behind it, and is connected again once",
          "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  Sshd bastion;
  sshd.prepend_config(behind(jump(bastion), {&bastion}));
  Client client(sshd.options());
  std::vector<std::unique_ptr<CommandStream>> streams;
  for (int i = 1; i <= 3; ++i) {
    auto stream = client.wait(launcher::start_command(*client.backend.exec(inner(sshd, i)),
                                                      inner(sshd, i), "echo up; sleep 100"));
    REQUIRE(stream);
    REQUIRE(*client.wait(read_some(**stream, 3)) == "up\n");
    streams.push_back(std::move(*stream));
  }
  bastion.kill_connections();
  for (const auto& stream : streams) {
    const auto end = client.wait(read_all(*stream));
    REQUIRE_FALSE(end);
    INFO(end.error().message);
    CHECK(end.error().kind == ErrorKind::kUnavailable);
    CHECK(contains(end.error().message, "the connection ended: its jump host: "));
  }
  io::TaskGroup group(client.context.get_executor());
  int good = 0;
  auto one = [&](int i) -> io::awaitable<void> {
    auto result = co_await launcher::run_command(*client.backend.exec(inner(sshd, i)),
                                                 inner(sshd, i), "true", "", 30s);
    if (result) ++good;
  };
  for (int i = 1; i <= 3; ++i) group.spawn(one(i));
  client.finish(group);
  CHECK(good == 3);
  CHECK(logins(bastion) == 2);
}

TEST_CASE("ssh jump: errors name the host, its jump host and the remedy", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  const Sshd closed(
      {.max_startups = "100", .max_sessions = "10", .more = {"AllowTcpForwarding no"}});
  const auto message = [&](const std::string& jumps, const Host& host) {
    Sshd* target = &sshd;
    write_file(target->config(),
               behind(jumps, {&bastion, &closed}) +
                   fmt::format("UserKnownHostsFile {}\nIdentityAgent none\n", sshd.known_hosts()));
    Client client(sshd.options());
    const auto result = client.run(host, "true");
    return result ? std::string("reached") : result.error().message;
  };
  CHECK(message(jump(bastion), inner(sshd, 1)) == "reached");
  const std::string refused = message(jump(bastion), {"", "127.0.1.1", 1});
  INFO(refused);
  CHECK(refused ==
        "127.0.1.1:1: connect to 127.0.1.1 by way of its jump host: Connection refused: is sshd "
        "running on the host, and is the port right?");
  const std::string forbidden = message(jump(closed), inner(sshd, 1));
  INFO(forbidden);
  CHECK(contains(forbidden, "AllowTcpForwarding"));
  const std::string down = message("127.0.0.1:1", inner(sshd, 1));
  INFO(down);
  CHECK(contains(down,
                 fmt::format("127.0.1.1:{}: jump host: 127.0.0.1:1: connect to ", sshd.port())));
  const std::string circle = message("127.0.1.8,127.0.1.9", inner(sshd, 1));
  INFO(circle);
  CHECK(contains(circle, "ProxyJump leads in a circle: give one of these hosts `ProxyJump none`"));
}

TEST_CASE("ssh jump: a block for all hosts does not send the jump host to itself", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  sshd.prepend_config(
      fmt::format("Host gate\n  HostName 127.0.0.1\n  Port {}\nHost *\n  ProxyJump gate\n"
                  "  IdentityFile {}\n",
                  bastion.port(), bastion.user_key()));
  Client client(sshd.options());
  const auto result = client.run(inner(sshd, 1), "true");
  INFO((result ? "" : result.error().message));
  CHECK(result);
  CHECK(logins(bastion) == 1);
}

TEST_CASE("ssh jump: hosts share the failure of their jump host", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;  // its key is not among the identities
  sshd.prepend_config(behind(jump(bastion), {}));
  Client client(sshd.options());
  std::vector<std::string> errors(6);
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    auto result = co_await launcher::run_command(*client.backend.exec(inner(sshd, i)),
                                                 inner(sshd, i), "true", "", 30s);
    errors[static_cast<std::size_t>(i)] = result ? "reached" : result.error().message;
  };
  for (int i = 0; i < 6; ++i) group.spawn(one(i));
  client.finish(group);
  for (const std::string& error : errors) CHECK(contains(error, ": jump host: "));
  for (const std::string& error : errors) CHECK(contains(error, ": authentication: "));
  CHECK(count(bastion.log(), "Failed publickey") == 1);
}

TEST_CASE("ssh jump: user and port of the options are for the hosts, not for the jump host",
          "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  // The jump host's name is made of the host's.
  sshd.prepend_config(fmt::format(
      "Host 127.0.1.*\n  ProxyJump gate-%n\nHost gate-127.0.1.1\n  HostName 127.0.0.1\n  Port {}\n"
      "  IdentityFile {}\nHost *\n",
      bastion.port(), bastion.user_key()));
  io::SshOptions options = sshd.options();
  options.user = "nobody-here";
  options.port = sshd.port();
  Client client(options);
  const auto result = client.run({own_user_name(), "127.0.1.1", 0}, "true");
  INFO((result ? "" : result.error().message));
  CHECK(result);
  CHECK(logins(bastion) == 1);
}

TEST_CASE("ssh jump: a host that does not answer its jump host is given up", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  sshd.prepend_config(behind(jump(bastion), {&bastion}));
  using io::asio::ip::tcp;
  io::asio::io_context other;
  tcp::acceptor full(other, tcp::v4());
  full.bind({io::asio::ip::address_v4::any(), 0});
  full.listen(0);
  // With its queue full, the kernel answers nobody.
  std::vector<tcp::socket> queued;
  const tcp::endpoint to(io::asio::ip::address_v4::loopback(), full.local_endpoint().port());
  for (int i = 0; i < 4; ++i) {
    queued.emplace_back(other, tcp::v4()).native_non_blocking(true);
    ::connect(queued.back().native_handle(), to.data(), static_cast<socklen_t>(to.size()));
  }
  io::SshOptions options = sshd.options();
  options.connect_timeout = 1s;
  Client client(options);
  REQUIRE(client.run(inner(sshd, 1), "true"));
  const auto silent = client.run({"", "127.0.1.2", full.local_endpoint().port()}, "true");
  REQUIRE_FALSE(silent);
  INFO(silent.error().message);
  CHECK(silent.error().kind == ErrorKind::kTimeout);
  CHECK(contains(silent.error().message, "by way of its jump host: no answer within 1.0 s"));
}
