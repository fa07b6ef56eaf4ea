#include "launcher/backend/ssh/target.h"

#include <optional>

#include "io/asio.h"
#include "io/task_group.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

using namespace dt;
using namespace dt::launcher;
using namespace std::chrono_literals;

namespace {

class Lines final : public io::Log {
 public:
  void line(io::Level, std::string_view text) override { lines.emplace_back(text); }
  std::vector<std::string> lines;
};

/// Targets from a given ssh config.
struct Configured {
  explicit Configured(const std::string& config) {
    options.config_file = folder / "config";
    test::write_file(options.config_file, config);
  }
  [[nodiscard]] Targets targets() { return {options, once_log, openssh}; }
  /// Of a host that the files alone decide.
  [[nodiscard]] Target find(const Targets& targets, const Host& host) {
    std::optional<Target> found;
    auto keep = [](const Targets& all, Host one,
                   std::optional<Target>& into) -> io::awaitable<void> {
      auto result = co_await all.find(one);
      into.emplace(std::move(*result));
    };
    io::TaskGroup group(context.get_executor());
    group.spawn(keep(targets, host, found));
    context.restart();
    context.run();
    return std::move(*found);
  }

  io::asio::io_context context{1};
  test::TempDir folder;
  io::SshOptions options;
  Lines log;
  OnceLog once_log{log};
  OpenSsh openssh{context.get_executor(), 16, 10s};
};

}  // namespace

TEST_CASE("ssh target: the host's line comes before the options, they before the config",
          "[ssh_config]") {
  Configured configured("Host node\n  HostName 10.0.0.7\n  Port 2300\n  User carol\n");
  const Target from_config = configured.targets().read(Host{"", "node", 0});
  CHECK(from_config.hostname == "10.0.0.7");
  CHECK(from_config.port == 2300);
  CHECK(from_config.user == "carol");
  configured.options.port = 2200;
  configured.options.user = "bob";
  const Target from_options = configured.targets().read(Host{"", "node", 0});
  CHECK(from_options.port == 2200);
  CHECK(from_options.user == "bob");
  const Target from_host = configured.targets().read(Host{"alice", "node", 2100});
  CHECK(from_host.port == 2100);
  CHECK(from_host.user == "alice");
  CHECK(from_host.written == "alice@node:2100");
  CHECK(phase_error(from_host, "connect", Error{ErrorKind::kIo, "broken"}).message ==
        "alice@node:2100: connect: broken");
}

TEST_CASE("ssh target: HostKeyAlias stands for name and port, and new hosts are accepted once",
          "[ssh_config]") {
  Configured configured("Host cloud\n  HostKeyAlias fleet\n  Port 2300\n");
  const Target aliased = configured.targets().read(Host{"", "cloud", 0});
  CHECK(aliased.key_name == "fleet");
  CHECK(aliased.key_port == 0);
  const Target plain = configured.targets().read(Host{"", "other", 2200});
  CHECK(plain.key_name == "other");
  CHECK(plain.key_port == 2200);
  CHECK(plain.host_keys == io::HostKeyPolicy::kAcceptNew);
  configured.options.known_hosts = io::HostKeyPolicy::kOff;
  CHECK(configured.targets().read(Host{"", "other", 0}).host_keys == io::HostKeyPolicy::kOff);
}

TEST_CASE("ssh target: named identities replace the usual files", "[ssh_config]") {
  Configured configured("Host keyed\n  IdentityFile /keys/mine\n  IdentityAgent none\n");
  const Targets usual = configured.targets();
  const AuthPlan by_default = usual.auth_plan(usual.read(Host{"", "other", 0}), 3s);
  CHECK(by_default.usual_files);
  CHECK(by_default.identity_files.size() == 3);
  CHECK(by_default.agent_deadline == Duration(3s));
  configured.options.identities = {"/keys/given"};
  const Targets named = configured.targets();
  const AuthPlan plan = named.auth_plan(named.read(Host{"", "keyed", 0}), 3s);
  CHECK_FALSE(plan.usual_files);
  CHECK(plan.identity_files == std::vector<std::string>{"/keys/given", "/keys/mine"});
  CHECK(plan.agent_socket.empty());
}

TEST_CASE("ssh target: a keyword without effect is warned of once for all hosts", "[ssh_config]") {
  Configured configured("Host *\n  LocalForward 8080 localhost:80\n");
  const Targets targets = configured.targets();
  CHECK(configured.find(targets, Host{"", "a", 0}).hostname == "a");
  CHECK(configured.find(targets, Host{"", "b", 0}).hostname == "b");
  REQUIRE(configured.log.lines.size() == 1);
  CHECK(configured.log.lines[0].find("config:2:") != std::string::npos);
}

TEST_CASE("ssh target: the ssh command line connects as the backend does", "[ssh_config]") {
  Configured configured("");
  configured.options.port = 2200;
  configured.options.connect_timeout = 3s;
  configured.options.identities = {"/keys/given"};
  configured.options.known_hosts = io::HostKeyPolicy::kStrict;
  CHECK(configured.targets().ssh_command(Host{"alice", "node", 0}) ==
        "ssh -o BatchMode=yes -o ServerAliveInterval=5 -o ConnectTimeout=3 -o "
        "StrictHostKeyChecking=yes -F " +
            configured.options.config_file + " -i /keys/given -p 2200 -l alice");
}
