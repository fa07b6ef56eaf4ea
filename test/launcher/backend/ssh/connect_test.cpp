#include <poll.h>

#include <array>
#include <boost/asio/ip/tcp.hpp>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

namespace {

using io::asio::ip::tcp;

/// Accepts connections and never sends a byte.
class SilentServer {
 public:
  [[nodiscard]] Host host() const { return {"", "127.0.0.1", acceptor_.local_endpoint().port()}; }

  /// Runs `client` until the first bytes of a connection's handshake are here.
  tcp::socket accept_handshake(io::asio::io_context& client) {
    acceptor_.non_blocking(true);
    tcp::socket peer(context_);
    std::array<char, 64> piece{};
    boost::system::error_code ec;
    do {
      client.restart();
      client.run_one_for(20ms);
      if (!peer.is_open()) acceptor_.accept(peer, ec);
      if (peer.is_open()) peer.non_blocking(true);
      if (peer.is_open()) peer.read_some(io::asio::buffer(piece), ec);
    } while (ec == io::asio::error::would_block);
    return peer;
  }

 private:
  io::asio::io_context context_;
  tcp::acceptor acceptor_{context_, {io::asio::ip::address_v4::loopback(), 0}};
};

/// Whether the other side closes within some seconds.
bool is_closed_soon(tcp::socket& peer) {
  const auto end = std::chrono::steady_clock::now() + 5s;
  std::array<char, 4096> piece{};
  boost::system::error_code ec;
  while (std::chrono::steady_clock::now() < end && (!ec || ec == io::asio::error::would_block)) {
    pollfd ready{peer.native_handle(), POLLIN, 0};
    ::poll(&ready, 1, 100);
    peer.read_some(io::asio::buffer(piece), ec);
  }
  return ec == io::asio::error::eof || ec == io::asio::error::connection_reset;
}

io::awaitable<void> run_true(SshBackend& backend, Host host, std::string& error) {
  auto done = co_await launcher::run_command(*backend.exec(host), host, "true", "", 30s);
  if (!done) error = done.error().message;
}

}  // namespace

TEST_CASE("ssh: one connection per host serves many commands", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  for (int i = 0; i < 5; ++i) REQUIRE(client.run(sshd.host(), "true"));
  CHECK(eventually(10, [&] { return sshd.connections() == 1; }));
  CHECK(count(sshd.log(), "Accepted publickey") == 1);
}

TEST_CASE("ssh: a killed connection ends the stream, and the next use connects again", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  Client client(sshd.options());
  auto stream = client.wait(launcher::start_command(*client.backend.exec(sshd.host()), sshd.host(),
                                                    "echo up; sleep 100"));
  REQUIRE(stream);
  REQUIRE(*client.wait(read_some(**stream, 3)) == "up\n");
  sshd.kill_connections();
  // An end without an exit code is no success: the command's result is unknown.
  const auto end = client.wait(read_all(**stream));
  REQUIRE_FALSE(end);
  CHECK(end.error().kind == ErrorKind::kUnavailable);
  CHECK(contains(end.error().message, to_string(sshd.host()) + ": the connection ended"));
  const auto sent = client.wait((*stream)->write("x"));
  CHECK_FALSE(sent);
  const auto again = client.run(sshd.host(), "echo back");
  REQUIRE(again);
  CHECK(again->out == "back\n");
}

TEST_CASE("ssh: a refused port is an error that says where and what to look at", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result = client.run(Host{"", "127.0.0.1", 1}, "true");
  REQUIRE_FALSE(result);
  CHECK(result.error().kind == ErrorKind::kUnavailable);
  CHECK(result.error().message ==
        "127.0.0.1:1: connect to 127.0.0.1 port 1: Connection refused: is sshd running there, and "
        "is the port right?");
}

TEST_CASE("ssh: an unknown name is an error of its lookup", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result = client.run(Host{"", "no-such-host.invalid", 0}, "true");
  REQUIRE_FALSE(result);
  CHECK(contains(result.error().message, "no-such-host.invalid: resolve: "));
}

TEST_CASE("ssh: a server that accepts and says nothing ends at the deadline", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const SilentServer silent;
  Client client(sshd.options(), {}, {.handshake = 500ms});
  const auto begin = std::chrono::steady_clock::now();
  const auto result = client.run(silent.host(), "true");
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE_FALSE(result);
  CHECK(result.error().kind == ErrorKind::kTimeout);
  CHECK(contains(result.error().message, "handshake: nothing more from 127.0.0.1"));
  CHECK(took < 5s);
}

TEST_CASE("ssh: a connection attempt that is cancelled closes its socket, and others learn of it",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  SilentServer server;
  Client client(sshd.options());
  std::string first_error;
  std::string second_error;
  io::TaskGroup first(client.context.get_executor());
  io::TaskGroup second(client.context.get_executor());
  first.spawn(run_true(client.backend, server.host(), first_error));
  second.spawn(run_true(client.backend, server.host(), second_error));
  tcp::socket peer = server.accept_handshake(client.context);
  first.cancel();
  client.finish(first);
  client.finish(second);
  CHECK(is_closed_soon(peer));
  CHECK(first_error.empty());
  CHECK(contains(second_error, "the connection was given up"));
}

TEST_CASE("ssh: a backend may go while a connection attempt of its runs", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  SilentServer server;
  io::asio::io_context context{1};
  LinesLog log;
  std::optional<SshBackend> backend;
  backend.emplace(context.get_executor(), sshd.options(), std::vector<std::string>(), log);
  std::string error;
  io::TaskGroup group(context.get_executor());
  group.spawn(run_true(*backend, server.host(), error));
  tcp::socket peer = server.accept_handshake(context);
  backend.reset();
  CHECK_FALSE(group.idle());
  group.cancel();
  while (!group.idle()) {
    context.restart();
    context.run_one_for(100ms);
  }
  CHECK(is_closed_soon(peer));
}

TEST_CASE("ssh: the config file says where to connect, as whom and with which key", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  sshd.prepend_config(
      fmt::format("Host node7\n  HostName 127.0.0.1\n  Port {}\n  IdentityFile "
                  "{}\n  ControlMaster auto\nHost *\n",
                  sshd.port(), sshd.user_key()));
  io::SshOptions options = sshd.options();
  options.identities.clear();
  Client client(options);
  const auto result = client.run(Host{"", "node7", 0}, "echo $SSH_CONNECTION");
  INFO((result ? "" : result.error().message));
  REQUIRE(result);
  CHECK(contains(result->out, std::to_string(sshd.port())));
  CHECK(client.backend.address(Host{"", "node7", 0}) == "127.0.0.1");
  CHECK(count(client.log.all(), "controlmaster is not supported") == 1);
}

TEST_CASE("ssh: ProxyCommand and ProxyJump are followed", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  Sshd bastion;
  sshd.prepend_config(fmt::format(
      "Host behind-command\n  HostKeyAlias target\n  ProxyCommand ssh -F {} -i {} -o "
      "StrictHostKeyChecking=accept-new -p {} -W 127.0.0.1:%p 127.0.0.1\n"
      "Host behind-jump\n  HostName 127.0.0.1\n  ProxyJump 127.0.0.1:{}\n"
      "Host 127.0.0.1\n  IdentityFile {}\n  StrictHostKeyChecking accept-new\nHost *\n",
      bastion.config(), bastion.user_key(), bastion.port(), bastion.port(), bastion.user_key()));
  Client client(sshd.options());
  for (const char* name : {"behind-command", "behind-jump"}) {
    const auto result = client.run(Host{"", name, sshd.port()}, "echo through");
    INFO((result ? "" : result.error().message));
    REQUIRE(result);
    CHECK(result->out == "through\n");
    CHECK(client.backend.address(Host{"", name, sshd.port()}).empty());
  }
  CHECK(count(bastion.log(), "Accepted publickey") == 2);
}

namespace {

/// A ProxyCommand by way of `bastion` for every host of `sshd`. It begins with `first`, where $1 is
/// the host's name.
void prepend_proxy(Sshd& sshd, const Sshd& bastion, const std::string& first) {
  const std::string script = sshd.dir() + "/proxy.sh";
  write_file(script,
             fmt::format("{}\nexec ssh -F {} -i {} -o StrictHostKeyChecking=accept-new "
                         "-p {} -W 127.0.0.1:{} 127.0.0.1\n",
                         first, bastion.config(), bastion.user_key(), bastion.port(), sshd.port()));
  sshd.prepend_config("Host *\n  HostKeyAlias target\n  ProxyCommand sh " + script + " %n\n");
}

}  // namespace

TEST_CASE("ssh: a ProxyCommand that fails is named with its exit code and last words", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const std::string tries = sshd.dir() + "/tries";
  sshd.prepend_config(fmt::format(
      "Host absent\n  ProxyCommand no-such-program -W %h:%p gate\n"
      "Host failing\n  ProxyCommand sh -c 'echo >>{}; printf \"no\\r\\nroute\\r\\n\" >&2; "
      "exit 7'\nHost *\n",
      tries));
  Client client(sshd.options());
  const auto absent = client.run({"", "absent", 22}, "true");
  REQUIRE_FALSE(absent);
  INFO(absent.error().message);
  CHECK(absent.error().kind == ErrorKind::kInvalid);
  CHECK(contains(absent.error().message,
                 "absent:22: ProxyCommand: `no-such-program -W absent:22 "
                 "gate` ended with exit code 127: "));
  CHECK(contains(absent.error().message, "no-such-program: not found: is the program installed"));
  const auto failing = client.run({"", "failing", 22}, "true");
  REQUIRE_FALSE(failing);
  INFO(failing.error().message);
  CHECK(failing.error().kind == ErrorKind::kUnavailable);
  CHECK(failing.error().message.ends_with("` ended with exit code 7: no route"));
  CHECK(count(read_file(tries), "\n") == 8);
}

TEST_CASE("ssh: few hosts at once are connected by the same ProxyCommand", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  // Each process says how many hosts were logged in at its start.
  const std::string starts = sshd.dir() + "/starts";
  prepend_proxy(sshd, bastion,
                fmt::format("grep -c 'Accepted publickey' {}/sshd.log >>{}", sshd.dir(), starts));
  Client client(sshd.options(), {}, {.per_address = 1, .proxy_turn = 1h});
  std::vector<std::string> errors(4);
  io::TaskGroup group(client.context.get_executor());
  for (std::string& error : errors)
    group.spawn(run_true(client.backend, {"", fmt::format("h{}", &error - &errors[0]), 0}, error));
  client.finish(group);
  CHECK(errors == std::vector<std::string>(4));
  CHECK(read_file(starts) == "0\n1\n2\n3\n");
}

TEST_CASE("ssh: a ProxyCommand that is stuck delays its own host alone", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const Sshd bastion;
  const std::string go = sshd.dir() + "/go";
  prepend_proxy(sshd, bastion,
                fmt::format("while test $1 = stuck && ! test -e {}; do sleep 0.05; done", go));
  Client client(sshd.options(), {}, {.per_address = 1, .proxy_turn = 10ms});
  std::string stuck_error;
  std::string error;
  io::TaskGroup stuck(client.context.get_executor());
  io::TaskGroup other(client.context.get_executor());
  stuck.spawn(run_true(client.backend, {"", "stuck", 0}, stuck_error));
  other.spawn(run_true(client.backend, {"", "other", 0}, error));
  client.finish(other);
  CHECK(error.empty());
  CHECK_FALSE(stuck.idle());
  write_file(go, "");
  client.finish(stuck);
  CHECK(stuck_error.empty());
}

TEST_CASE("ssh: thirty-two connections at once to one sshd with default limits all succeed",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "10:30:100", .max_sessions = "10", .more = {}});
  SshLimits limits;
  limits.channels_per_session = 1;
  Client client(sshd.options(), {}, limits);
  int good = 0;
  std::string problems;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&]() -> io::awaitable<void> {
    auto result = co_await launcher::run_command(*client.backend.exec(sshd.host()), sshd.host(),
                                                 "sleep 1", "", 40s);
    if (result && result->exit_code == 0)
      ++good;
    else if (!result)
      problems += result.error().message + "\n";
  };
  for (int i = 0; i < 32; ++i) group.spawn(one());
  client.finish(group);
  INFO(problems);
  CHECK(good == 32);
}

TEST_CASE("ssh: sshd dropping connections before its banner is retried", "[ssh]") {
  NEEDS_SSHD();
  // Different addresses of one sshd: the limit per address does not see that they are one.
  const Sshd sshd({.max_startups = "2:100:3", .max_sessions = "10", .more = {}});
  Client client(sshd.options());
  int good = 0;
  std::string problems;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    auto result = co_await launcher::run_command(*client.backend.exec(sshd.host(i)), sshd.host(i),
                                                 "true", "", 40s);
    if (result)
      ++good;
    else
      problems += result.error().message + "\n";
  };
  for (int i = 1; i <= 8; ++i) group.spawn(one(i));
  client.finish(group);
  INFO(problems);
  CHECK(good == 8);
  CHECK(contains(sshd.log(), "MaxStartups"));
}
