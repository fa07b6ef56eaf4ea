#include <sys/stat.h>

#include <filesystem>

#include "test/launcher/backend/ssh/ssh_fixture.h"

using namespace dt;
using namespace dt::launcher;
using namespace dt::test;

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
  // The key that accept-new wrote satisfies strict, and is not written twice.
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
  CHECK(count(sshd.log(), "Accepted publickey") == 0);
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

TEST_CASE("ssh: the config's StrictHostKeyChecking holds unless an option says otherwise",
          "[ssh]") {
  NEEDS_SSHD();
  Sshd sshd;
  sshd.prepend_config("StrictHostKeyChecking yes");
  {
    Client client(sshd.options());
    const auto refused = client.run(sshd.host(), "true");
    REQUIRE_FALSE(refused);
    CHECK(contains(refused.error().message, "is not in " + sshd.known_hosts()));
    CHECK(count(client.backend.remote_shell(sshd.host()), " -o StrictHostKeyChecking=yes ") == 1);
  }
  io::SshOptions options = sshd.options();
  options.known_hosts = io::HostKeyPolicy::kAcceptNew;
  Client client(options);
  CHECK(client.run(sshd.host(), "true"));
}

TEST_CASE("ssh: a host that only a certificate authority vouches for is refused with the remedy",
          "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const Sshd other;
  const std::string authority = "@cert-authority * " + other.host_public_key() + "\n";
  test::write_file(sshd.known_hosts(), authority);
  {
    Client client(sshd.options());
    const auto refused = client.run(sshd.host(), "true");
    REQUIRE_FALSE(refused);
    INFO(refused.error().message);
    CHECK(refused.error().kind == ErrorKind::kDenied);
    CHECK(contains(refused.error().message, sshd.known_hosts() + ":1 (@cert-authority)"));
    CHECK(contains(refused.error().message, "ssh-keyscan"));
    CHECK(test::read_file(sshd.known_hosts()) == authority);
  }
  test::write_file(sshd.known_hosts(), authority + fmt::format("[127.0.0.1]:{} {}\n", sshd.port(),
                                                               sshd.host_public_key()));
  Client client(sshd.options());
  CHECK(client.run(sshd.host(), "true"));
}

TEST_CASE("ssh: of a server's keys the one that is known is asked for", "[ssh]") {
  NEEDS_SSHD();
  const test::TempDir keys;
  test::run_tool({"ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", keys / "rsa"});
  const Sshd sshd(
      {.max_startups = "1000", .max_sessions = "10", .more = {"HostKey " + (keys / "rsa")}});
  test::write_file(sshd.known_hosts(), fmt::format("[127.0.0.1]:{} {}", sshd.port(),
                                                   test::read_file(keys / "rsa.pub")));
  const auto in = Client(sshd.options()).run(sshd.host(), "true");
  INFO((in ? "" : in.error().message));
  CHECK(in);
}

TEST_CASE("ssh: GlobalKnownHostsFile counts too, and nothing does where checks are off", "[ssh]") {
  NEEDS_SSHD();
  const Sshd sshd;
  const Sshd other;
  const std::string global = sshd.dir() + "/global";
  test::write_file(sshd.config(), fmt::format("UserKnownHostsFile {}\nGlobalKnownHostsFile {}\n",
                                              sshd.known_hosts(), global));
  io::SshOptions options = sshd.options();
  options.known_hosts = io::HostKeyPolicy::kStrict;
  const auto runs = [&](const std::string& key) {
    test::write_file(global, fmt::format("[127.0.0.1]:{} {}\n", sshd.port(), key));
    return Client(options).run(sshd.host(), "true").has_value();
  };
  CHECK(runs(sshd.host_public_key()));
  CHECK_FALSE(runs(other.host_public_key()));
  options.known_hosts = io::HostKeyPolicy::kOff;
  CHECK(runs(other.host_public_key()));
}
