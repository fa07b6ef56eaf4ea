#include "launcher/ssh.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <filesystem>

#include "io/asio.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/sync.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;
using namespace std::chrono_literals;
using test::Sshd;

// A test on a machine without sshd says so instead of failing.
#define NEEDS_SSHD()                                  \
  if (!Sshd::available()) {                           \
    WARN("SKIPPED: /usr/sbin/sshd is not installed"); \
    return;                                           \
  }                                                   \
  static_assert(true)

namespace {

class LinesLog final : public io::Log {
 public:
  void line(io::Level, std::string_view text) override { lines.emplace_back(text); }
  [[nodiscard]] std::string all() const { return fmt::format("{}", fmt::join(lines, "\n")); }
  std::vector<std::string> lines;
};

/// A loop, a backend on it, and plain calls for tests.
struct Client {
  explicit Client(io::SshOptions options, std::vector<std::string> bundle = {},
                  SshLimits limits = {})
      : backend(context.get_executor(), std::move(options), std::move(bundle), log, limits) {}

  /// Runs the loop until the coroutine is done.
  template <class T>
  T wait(io::awaitable<T> work) {
    std::optional<T> value;
    io::TaskGroup group(context.get_executor());
    auto keep = [](io::awaitable<T> w, std::optional<T>& into) -> io::awaitable<void> {
      T result = co_await std::move(w);
      into.emplace(std::move(result));
    };
    group.spawn(keep(std::move(work), value));
    finish(group);
    return std::move(*value);
  }
  /// Runs the loop until the group is idle.
  void finish(io::TaskGroup& group) {
    const auto end = std::chrono::steady_clock::now() + 50s;
    bool late = false;
    while (!group.idle()) {
      context.restart();
      context.run_one_for(100ms);
      if (late || std::chrono::steady_clock::now() < end) continue;
      late = true;
      group.cancel();
    }
    if (late) throw std::runtime_error("a test's coroutines did not end");
  }
  Result<CommandResult> run(const Host& host, std::string command, std::string input = {}) {
    return wait(backend.run(host, std::move(command), std::move(input), 30s));
  }

  io::asio::io_context context{1};
  LinesLog log;
  SshBackend backend;
};

/// The stream's bytes to its end.
io::awaitable<Result<std::string>> read_all(io::ByteStream& stream) {
  std::string text;
  std::string piece(64 * 1024, '\0');
  for (;;) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) co_return std::move(text);
    text.append(piece, 0, *n);
  }
}

io::awaitable<Result<std::string>> read_some(io::ByteStream& stream, std::size_t size) {
  std::string text;
  std::string piece(64 * 1024, '\0');
  while (text.size() < size) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
    text.append(piece, 0, *n);
  }
  co_return std::move(text);
}

std::string noise(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 12345;
  for (char& c : bytes) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A stand-in for dtagent: says its arguments, then echoes.
std::vector<std::string> fake_bundle(const Sshd& sshd) {
  const std::string folder = sshd.dir() + "/bundle";
  std::filesystem::create_directory(folder);
  test::write_file(folder + "/dtagent", "#!/bin/sh\nfor a; do printf '<%s>' \"$a\"; done\ncat\n",
                   0700);
  test::write_file(folder + "/dtserver", noise(300'000), 0700);
  return {folder + "/dtagent", folder + "/dtserver"};
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

}  // namespace

TEST_CASE("ssh: a command's output, stderr and exit code come back", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result = client.run(sshd.host(), "cat; echo oops >&2; exit 7", "hello\n");
  INFO((result ? "" : result.error().message));
  REQUIRE(result);
  CHECK(result->out == "hello\n");
  CHECK(result->err == "oops");
  CHECK(result->exit_code == 7);
  // A signal is 128 + its number.
  const auto killed = client.run(sshd.host(), "kill -TERM $$");
  REQUIRE(killed);
  CHECK(killed->exit_code == 143);
}

TEST_CASE("ssh: commands survive quoting, whatever is in them", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const auto result =
      client.run(sshd.host(), "printf '%s|' 'a b' \"c'd\" 'e\\f' '!' '$HOME' 'two\nlines' 'ä'");
  REQUIRE(result);
  CHECK(result->out == "a b|c'd|e\\f|!|$HOME|two\nlines|ä|");
}

TEST_CASE("ssh: twenty megabytes of any bytes go both ways at once", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  const std::string bytes = noise(20'000'000);
  auto stream = client.wait(client.backend.start(sshd.host(), "cat"));
  REQUIRE(stream);
  std::string back;
  auto reader = [&]() -> io::awaitable<Result<int>> {
    auto text = co_await read_some(**stream, bytes.size());
    if (!text) co_return tl::unexpected(text.error());
    back = std::move(*text);
    co_return 0;
  };
  auto writer = [&]() -> io::awaitable<Result<int>> {
    auto sent = co_await (*stream)->write(bytes);
    if (!sent) co_return tl::unexpected(sent.error());
    co_return 0;
  };
  using namespace io::asio::experimental::awaitable_operators;
  auto both = [&]() -> io::awaitable<bool> {
    auto pair = reader() && writer();
    const auto [in, out] = co_await std::move(pair);
    co_return in.has_value() && out.has_value();
  };
  CHECK(client.wait(both()));
  CHECK(back == bytes);
}

TEST_CASE("ssh: a reader that pauses holds the sender back and loses nothing", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  auto stream = client.wait(
      client.backend.start(sshd.host(), "head -c 8000000 /dev/zero | tr '\\0' x; echo end"));
  REQUIRE(stream);
  client.context.restart();
  client.context.run_for(500ms);  // the loop runs, nobody reads
  const auto text = client.wait(read_all(**stream));
  REQUIRE(text);
  CHECK(text->size() == 8'000'004);
  CHECK(text->substr(text->size() - 4) == "end\n");
}

TEST_CASE("ssh: the bundle is copied once, and the agent gets its words intact", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options(), fake_bundle(sshd));
  const AgentCommand command{{"dtagent", "--job", "it's a job", "--host", "10.0.0.1"}};
  for (int round = 0; round < 2; ++round) {
    auto stream = client.wait(client.backend.open(sshd.host(), command));
    INFO((stream ? "" : stream.error().message));
    REQUIRE(stream);
    const std::string greeting = "<--job><it's a job><--host><10.0.0.1>";
    CHECK(*client.wait(read_some(**stream, greeting.size())) == greeting);
    REQUIRE(client.wait((*stream)->write("ping")));
    CHECK(*client.wait(read_some(**stream, 4)) == "ping");
  }
  CHECK(count(client.log.all(), "copying the agent") == 1);
  // Complete and executable, without leftovers of the copy.
  std::vector<std::string> found;
  for (const auto& one : std::filesystem::recursive_directory_iterator(sshd.cache()))
    if (one.is_regular_file() && ::access(one.path().c_str(), X_OK) == 0)
      found.push_back(one.path().filename());
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<std::string>{"dtagent", "dtserver"});
  CHECK(std::distance(std::filesystem::directory_iterator(sshd.cache() + "/dtlaunch"), {}) == 1);
  CHECK(client.backend.connections() == 1);
}

TEST_CASE("ssh: many copy the bundle to one home at once and all get their agent", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options(), fake_bundle(sshd));
  int good = 0;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](int i) -> io::awaitable<void> {
    AgentCommand command{{"dtagent", "x"}};
    auto stream = co_await client.backend.open(sshd.host(i), std::move(command));
    if (!stream) co_return;
    auto greeting = co_await read_some(**stream, 3);
    if (greeting && *greeting == "<x>") ++good;
  };
  for (int i = 1; i <= 6; ++i) group.spawn(one(i));
  client.finish(group);
  CHECK(good == 6);
  CHECK(std::distance(std::filesystem::directory_iterator(sshd.cache() + "/dtlaunch"), {}) == 1);
}

TEST_CASE("ssh: an agent that fails ends its stream with its own words", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string program = sshd.dir() + "/dtagent";
  test::write_file(program, "#!/bin/sh\necho 'no agent for job j' >&2\nexit 3\n", 0700);
  Client client(sshd.options(), {program});
  auto stream = client.wait(client.backend.open(sshd.host(), {{"dtagent"}}));
  REQUIRE(stream);
  const auto end = client.wait(read_all(**stream));
  REQUIRE_FALSE(end);
  CHECK(end.error().kind == ErrorKind::kUnavailable);
  CHECK(contains(end.error().message, "no agent for job j"));
}

TEST_CASE("ssh: a noisy login shell does not confuse the start of the agent", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd({.max_startups = "1000",
                   .max_sessions = "10",
                   .more = {"ForceCommand echo welcome to the machine; eval "
                            "\"$SSH_ORIGINAL_COMMAND\""}});
  Client client(sshd.options(), fake_bundle(sshd));
  auto stream = client.wait(client.backend.open(sshd.host(), {{"dtagent", "y"}}));
  INFO((stream ? "" : stream.error().message));
  REQUIRE(stream);
  CHECK(*client.wait(read_some(**stream, 3)) == "<y>");
}

TEST_CASE("ssh: one connection per host serves many commands", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  for (int i = 0; i < 5; ++i) REQUIRE(client.run(sshd.host(), "true"));
  CHECK(client.backend.connections() == 1);
  CHECK(count(sshd.log(), "Accepted publickey") == 1);
}

TEST_CASE("ssh: a killed connection ends the stream, and the next use connects again", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  Client client(sshd.options());
  auto stream = client.wait(client.backend.start(sshd.host(), "echo up; sleep 100"));
  REQUIRE(stream);
  REQUIRE(*client.wait(read_some(**stream, 3)) == "up\n");
  sshd.kill_connections();
  const auto end = client.wait(read_all(**stream));
  REQUIRE(end);
  CHECK(end->empty());
  const auto sent = client.wait((*stream)->write("x"));
  CHECK_FALSE(sent);
  const auto again = client.run(sshd.host(), "echo back");
  REQUIRE(again);
  CHECK(again->out == "back\n");
}

TEST_CASE("ssh: closing a stream ends a read that waits on it", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  auto stream = client.wait(client.backend.start(sshd.host(), "sleep 100"));
  REQUIRE(stream);
  io::asio::steady_timer timer(client.context, 50ms);
  timer.async_wait([&](const boost::system::error_code&) { (*stream)->close(); });
  const auto end = client.wait(read_all(**stream));
  REQUIRE_FALSE(end);
  CHECK(end.error().kind == ErrorKind::kClosed);
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
  io::asio::io_context other;
  io::asio::ip::tcp::acceptor silent(other, {io::asio::ip::address_v4::loopback(), 0});
  Client client(sshd.options(), {}, {.handshake = 500ms});
  const auto begin = std::chrono::steady_clock::now();
  const auto result = client.run(Host{"", "127.0.0.1", silent.local_endpoint().port()}, "true");
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE_FALSE(result);
  CHECK(result.error().kind == ErrorKind::kTimeout);
  CHECK(contains(result.error().message, "handshake: nothing more from 127.0.0.1"));
  CHECK(took < 5s);
}

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

TEST_CASE("ssh: unknown keys are refused by strict, remembered by accept-new", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  io::SshOptions options = sshd.options();
  options.known_hosts = io::HostKeyPolicy::kStrict;
  {
    Client strict(options);
    const auto refused = strict.run(sshd.host(), "true");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().kind == ErrorKind::kDenied);
    CHECK(contains(refused.error().message, "host key: "));
    CHECK(contains(refused.error().message, "is not in " + sshd.known_hosts()));
    CHECK_FALSE(std::filesystem::exists(sshd.known_hosts()));
  }
  options.known_hosts = io::HostKeyPolicy::kAcceptNew;
  Client accepting(options);
  REQUIRE(accepting.run(sshd.host(), "true"));
  CHECK(test::read_file(sshd.known_hosts()) ==
        fmt::format("[127.0.0.1]:{} {}\n", sshd.port(), sshd.host_public_key()));
  struct stat s {};
  REQUIRE(::stat(sshd.known_hosts().c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0600);
  // What accept-new wrote satisfies strict, and is not written twice.
  options.known_hosts = io::HostKeyPolicy::kStrict;
  Client strict(options);
  CHECK(strict.run(sshd.host(), "true"));
  accepting.backend.disconnect(sshd.host());
  REQUIRE(accepting.run(sshd.host(), "true"));
  CHECK(count(test::read_file(sshd.known_hosts()), "\n") == 1);
}

TEST_CASE("ssh: a changed host key is refused by file and line, before anything runs", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const Sshd other;
  test::write_file(sshd.known_hosts(),
                   fmt::format("# machines\nelse ssh-ed25519 AAAA\n[127.0.0.1]:{} {}\n",
                               sshd.port(), other.host_public_key()));
  Client client(sshd.options());
  const std::string touched = sshd.dir() + "/touched";
  const auto result = client.run(sshd.host(), "touch " + touched);
  REQUIRE_FALSE(result);
  INFO(result.error().message);
  CHECK(result.error().kind == ErrorKind::kDenied);
  CHECK(contains(result.error().message, sshd.known_hosts() + ":3"));
  CHECK(contains(result.error().message, fmt::format("ssh-keygen -f {} -R '[127.0.0.1]:{}'",
                                                     sshd.known_hosts(), sshd.port())));
  CHECK_FALSE(std::filesystem::exists(touched));
  CHECK(count(sshd.log(), "Accepted") == 0);
}

TEST_CASE("ssh: a revoked host key is refused even when another line allows it", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  test::write_file(sshd.known_hosts(),
                   fmt::format("[127.0.0.1]:{} {}\n@revoked * {}\n", sshd.port(),
                               sshd.host_public_key(), sshd.host_public_key()));
  Client client(sshd.options());
  const auto result = client.run(sshd.host(), "true");
  REQUIRE_FALSE(result);
  CHECK(contains(result.error().message, "is revoked (" + sshd.known_hosts() + ":2)"));
}

TEST_CASE("ssh: a key of a type only other types are known of is refused", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  test::write_file(sshd.known_hosts(),
                   fmt::format("[127.0.0.1]:{} ssh-rsa AAAAB3NzaC1yc2E=\n", sshd.port()));
  Client client(sshd.options());
  const auto result = client.run(sshd.host(), "true");
  REQUIRE_FALSE(result);
  CHECK(contains(result.error().message, "another type of key"));
}

TEST_CASE("ssh: hashed known_hosts files and HostKeyAlias are understood", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  test::write_file(sshd.known_hosts(), fmt::format("[127.0.0.1]:{} {}\nmy-alias {}\n", sshd.port(),
                                                   sshd.host_public_key(), sshd.host_public_key()));
  test::run_tool({"ssh-keygen", "-q", "-H", "-f", sshd.known_hosts()});
  REQUIRE(contains(test::read_file(sshd.known_hosts()), "|1|"));
  io::SshOptions options = sshd.options();
  options.known_hosts = io::HostKeyPolicy::kStrict;
  {
    Client client(options);
    CHECK(client.run(sshd.host(1), "true"));
    CHECK_FALSE(client.run(sshd.host(2), "true"));
  }
  sshd.prepend_config("Host *\n  HostKeyAlias my-alias\n");
  Client client(options);
  CHECK(client.run(sshd.host(2), "true"));
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
  CHECK(*client.wait(client.backend.address(Host{"", "node7", 0})) == "127.0.0.1");
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
  }
  CHECK(count(bastion.log(), "Accepted") == 2);
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
    auto result = co_await client.backend.run(sshd.host(), "sleep 1", "", 40s);
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
    auto result = co_await client.backend.run(sshd.host(i), "true", "", 40s);
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

namespace {

/// A real ssh-agent holding the server's user key, in SSH_AUTH_SOCK as long as it lives.
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
  // ... but not the one whose public part is among the identities.
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

TEST_CASE("sync: the folder arrives on every host by rsync and by tar, nothing is deleted",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string source = sshd.dir() + "/work";
  std::filesystem::create_directories(source + "/sub dir");
  std::filesystem::create_directories(source + "/.dtlaunch/old");
  test::write_file(source + "/sub dir/data", noise(100'000));
  test::write_file(source + "/run.sh", "#!/bin/sh\n", 0755);
  Client client(sshd.options());
  for (const bool with_rsync : {true, false}) {
    const std::string path = std::getenv("PATH");
    // Without rsync here the tar way is taken.
    const test::TempDir tools;
    if (!with_rsync) {
      for (const char* name : {"tar", "gzip"})
        std::filesystem::create_symlink(std::string("/bin/") + name, tools / name);
      ::setenv("PATH", tools.path().c_str(), 1);
    }
    const std::string target = fmt::format("{}/it's {}", sshd.dir(), with_rsync);
    std::filesystem::create_directories(target);
    test::write_file(target + "/keep", "mine");
    const auto done = client.wait(
        sync_folder(client.backend, {sshd.host(1), sshd.host(2), sshd.host(1)}, source, target));
    ::setenv("PATH", path.c_str(), 1);
    INFO((done ? "" : done.error().message));
    REQUIRE(done);
    CHECK(test::read_file(target + "/sub dir/data") == noise(100'000));
    CHECK(::access((target + "/run.sh").c_str(), X_OK) == 0);
    CHECK(test::read_file(target + "/keep") == "mine");
    CHECK_FALSE(std::filesystem::exists(target + "/.dtlaunch"));
  }
}

TEST_CASE("sync: every host that failed is named with the tool's words", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  Client client(sshd.options());
  test::write_file(sshd.dir() + "/file", "");
  const auto mkdir = client.wait(
      sync_folder(client.backend, {sshd.host(1)}, sshd.dir() + "/bundle", sshd.dir() + "/file/x"));
  REQUIRE_FALSE(mkdir);
  CHECK(contains(mkdir.error().message, fmt::format("{}: sync: mkdir", sshd.host(1))));
  const auto gone =
      client.wait(sync_folder(client.backend, {sshd.host(1), Host{"", "127.0.0.1", 1}},
                              sshd.dir() + "/none", sshd.dir() + "/target"));
  REQUIRE_FALSE(gone);
  INFO(gone.error().message);
  CHECK(contains(gone.error().message,
                 fmt::format("{}: sync: rsync ended with exit code 23", sshd.host(1))));
  CHECK(contains(gone.error().message, "127.0.0.1:1: connect to 127.0.0.1 port 1"));
}
