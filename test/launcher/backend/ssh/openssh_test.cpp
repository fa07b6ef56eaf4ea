#include "launcher/backend/ssh/openssh.h"

#include <sys/stat.h>

#include <csignal>
#include <cstdlib>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

namespace {

/// An environment variable, as it was afterwards.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name), old_(std::getenv(name)) {
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() { ::setenv(name_, old_.c_str(), 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::string old_;
};

/// Where each host's probe leaves a line.
std::string probes(const Sshd& sshd) { return read_file(sshd.dir() + "/probes"); }

}  // namespace

TEST_CASE("ssh: the algorithms of a Host block apply to its alias", "[ssh]") {
  NEEDS_SSHD();
  // None of these is offered by default.
  Sshd sshd(
      {.max_startups = "1000",
       .max_sessions = "10",
       .more = {"Ciphers aes256-cbc", "MACs hmac-sha1", "KexAlgorithms diffie-hellman-group14-sha1",
                "HostKeyAlgorithms ssh-ed25519"}});
  sshd.prepend_config(
      "Host old\n  HostName 127.0.0.1\n  Ciphers aes256-cbc\n  MACs +hmac-sha1\n"
      "  KexAlgorithms +diffie-hellman-group14-sha1\n  Compression yes\n"
      "Host odd\n  HostName 127.0.0.1\n  Ciphers twofish\nHost *\n");
  Client client(sshd.options());
  const auto old = client.run(Host{"", "old", sshd.port()}, "echo in");
  INFO((old ? "" : old.error().message));
  REQUIRE(old);
  CHECK_FALSE(client.run(sshd.host(), "true"));
  const auto odd = client.run(Host{"", "odd", sshd.port()}, "true");
  REQUIRE_FALSE(odd);
  CHECK(contains(odd.error().message, "options: the ssh config's Ciphers twofish leaves none"));
}

TEST_CASE("ssh: a Match exec is asked of OpenSSH once a host, and a slow one delays its own alone",
          "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  sshd.prepend_config(
      fmt::format("Match originalhost 127.0.0.*,slow exec \"echo %n >> {0}/probes; "
                  "while test %n = slow && ! test -e {0}/go; do sleep 0.05; done\"\n"
                  "  Port {1}\n  HostKeyAlias probed\nHost slow\n  HostName 127.0.0.9\nHost *\n",
                  sshd.dir(), sshd.port()));
  Client client(sshd.options());
  std::vector<std::string> order;
  std::string problems;
  io::TaskGroup group(client.context.get_executor());
  auto one = [&](std::string name) -> io::awaitable<void> {
    Host host{"", name, 0};
    auto result = co_await launcher::run_command(*client.backend.exec(host), host, "true", "", 30s);
    if (!result) problems += result.error().message + "\n";
    order.push_back(name);
    if (order.size() == 9) write_file(sshd.dir() + "/go", "");
  };
  group.spawn(one("slow"));
  for (int i = 1; i <= 8; ++i) group.spawn(one(fmt::format("127.0.0.{}", i)));
  group.spawn(one("127.0.0.1"));
  client.finish(group);
  INFO(problems);
  CHECK(problems.empty());
  REQUIRE(order.size() == 10);
  CHECK(order.back() == "slow");
  CHECK(count(probes(sshd), "\n") == 9);
  CHECK(count(read_file(sshd.known_hosts()), "probed ") == 1);
  // A connection that breaks is made again with the same answer.
  sshd.kill_connections();
  client.run(Host{"", "127.0.0.1", 0}, "true");
  REQUIRE(client.run(Host{"", "127.0.0.1", 0}, "true"));
  CHECK(count(probes(sshd), "\n") == 9);
}

TEST_CASE("ssh: a Match block that cannot be decided is named with its line and the remedy",
          "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const std::string pid_file = sshd.dir() + "/pid";
  const std::string probe = fmt::format("echo $$ >{}; exec sleep 1000", pid_file);
  sshd.prepend_config("Match exec \"" + probe + "\"\n  User x\nHost *\n");
  const Host host{"", "127.0.0.1", sshd.port()};
  const std::string block = ": ssh config: " + sshd.config() + ":1: Match exec \"" + probe + "\": ";
  {
    Client client(sshd.options(), {}, {.config = 2s});
    const auto late = client.run(host, "true");
    REQUIRE_FALSE(late);
    INFO(late.error().message);
    CHECK(late.error().kind == ErrorKind::kTimeout);
    CHECK(contains(late.error().message, block));
    CHECK(contains(late.error().message, "nothing within 2.0 s"));
    const std::string left = read_file(pid_file);  // empty: the probe had not begun
    CHECK((left.empty() || eventually(20, [&] { return ::kill(std::stoi(left), 0) != 0; })));
  }
  {
    const Variable path("PATH", sshd.dir());
    Client client(sshd.options());
    const auto absent = client.run(host, "true");
    REQUIRE_FALSE(absent);
    INFO(absent.error().message);
    CHECK(contains(absent.error().message, block + "only OpenSSH's client can decide this block"));
    CHECK(contains(absent.error().message, "openssh-client"));
  }
  {
    const std::string program = sshd.dir() + "/ssh";
    write_file(program, "#!/bin/sh\nexec /usr/bin/yes\n");
    REQUIRE(::chmod(program.c_str(), 0700) == 0);
    const Variable path("PATH", sshd.dir());
    Client client(sshd.options());
    const auto endless = client.run(host, "true");
    REQUIRE_FALSE(endless);
    CHECK(contains(endless.error().message, block + "`ssh -G` prints without end"));
  }
  write_file(sshd.config(), "Nonsense on\nMatch exec true\n");
  Client client(sshd.options());
  const auto wrong = client.run(host, "true");
  REQUIRE_FALSE(wrong);
  INFO(wrong.error().message);
  CHECK(
      contains(wrong.error().message, "config:2: Match exec true: `ssh -G` ended with exit code"));
  CHECK(contains(wrong.error().message, "Bad configuration option: nonsense"));
}

TEST_CASE("ssh: OpenSSH is asked with the user and port that are given, and believed", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  sshd.prepend_config("Match exec \"echo %r:%p >>" + sshd.dir() +
                      "/probes; false\"\n  StrictHostKeyChecking no\nHost *\n");
  Client client(sshd.options());
  const Host host{"nobody-here", "127.0.0.1", sshd.port()};
  const std::string guess = client.backend.remote_shell(host);
  CHECK(contains(guess, "StrictHostKeyChecking=no"));
  CHECK_FALSE(client.run(host, "true"));
  CHECK(probes(sshd) == fmt::format("nobody-here:{}\n", sshd.port()));
  REQUIRE(client.run(sshd.host(), "true"));
  CHECK(contains(client.backend.remote_shell(sshd.host()), "StrictHostKeyChecking=accept-new"));
}

TEST_CASE("ssh: OpenSSH is asked again after no answer, and after one that led nowhere", "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  const std::string go = sshd.dir() + "/go";
  sshd.prepend_config(
      fmt::format("Match exec \"test -e {}\"\n  Port {}\nMatch all\n  Port 1\n", go, sshd.port()));
  Client client(sshd.options());
  const Host host{"", "127.0.0.1", 0};
  {
    const Variable path("PATH", sshd.dir());
    const auto none = client.run(host, "true");
    REQUIRE_FALSE(none);
    CHECK(contains(none.error().message, "there is no `ssh` in PATH"));
  }
  const auto wrong = client.run(host, "true");
  REQUIRE_FALSE(wrong);
  CHECK(contains(wrong.error().message, "connect to 127.0.0.1 port 1"));
  write_file(go, "");
  CHECK(client.run(host, "true"));
}

TEST_CASE("ssh: all who ask OpenSSH for one host wait for one answer", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const std::string go = sshd.dir() + "/go";
  write_file(sshd.config(), fmt::format("Match exec \"echo >>{0}/probes; while ! test -e {1}; do "
                                        "sleep 0.05; done\"\n  User ann\n",
                                        sshd.dir(), go));
  io::asio::io_context context(1);
  OpenSsh openssh(context.get_executor(), 4, 40s);
  const OpenSsh::Question question{"host", "", 0, sshd.config()};
  std::vector<std::string> users(3);
  auto ask = [&](std::string& user) -> io::awaitable<void> {
    auto settings = co_await openssh.settings(question, SshHostConfig());
    user = settings ? settings->user : settings.error().message;
  };
  io::TaskGroup first(context.get_executor());
  io::TaskGroup others(context.get_executor());
  first.spawn(ask(users[0]));
  others.spawn(ask(users[1]));
  others.spawn(ask(users[2]));
  const auto run_until = [&](const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + 50s;
    while (!done() && std::chrono::steady_clock::now() < end) {
      context.restart();
      context.run_one_for(20ms);
    }
    return done();
  };
  const bool is_given_up = GENERATE(false, true);
  REQUIRE(run_until([&] { return count(probes(sshd), "\n") == 1; }));
  // Whoever asked is gone: another one asks.
  if (is_given_up) first.cancel();
  if (is_given_up) REQUIRE(run_until([&] { return count(probes(sshd), "\n") == 2; }));
  write_file(go, "");
  REQUIRE(run_until([&] { return first.idle() && others.idle(); }));
  if (!is_given_up) CHECK(users[0] == "ann");
  CHECK(users[1] == "ann");
  CHECK(users[2] == "ann");
  CHECK(count(probes(sshd), "\n") == (is_given_up ? 2 : 1));
}
