/// A job under the real supervisor, whose agents and network are the test's.
#pragma once

#include <string>
#include <vector>

#include "core/job/records.h"
#include "io/job/control_client.h"
#include "io/job/control_protocol.h"
#include "supervisor/files/journal_file.h"
#include "supervisor/supervisor.h"
#include "test/supervisor/agent_end.h"

namespace dt::test {

using namespace std::chrono_literals;
using supervisor::Supervisor;
using supervisor::SupervisorOptions;

inline constexpr auto kStopTimeout = 60s;

/// A job of one worker under the real supervisor. The agents, and the network, are the test's.
struct Supervised : Loop {
  TempDir dir;
  SupervisorOptions options;
  io::JobSpec& spec = options.spec;
  std::string job_dir, journal_path, socket;
  std::vector<std::unique_ptr<AgentEnd>> ends;  ///< One per connection, first one first.
  bool refuses = false;                         ///< No connection can be made.
  int tries = 0;
  Duration slow{};  ///< Duration of connecting.
  std::optional<int> code;
  std::unique_ptr<Supervisor> supervisor;

  struct Network final : launcher::Backend {
    explicit Network(Supervised& t) : test(t) {}
    io::awaitable<Result<std::unique_ptr<io::ByteStream>>> open(
        Host, std::vector<std::string> argv) override {
      ++test.tries;
      const auto there = std::chrono::steady_clock::now() + test.slow;
      if (test.slow > Duration::zero()) co_await io::sleep_for(test.slow);
      if (std::chrono::steady_clock::now() < there) co_return fail(ErrorKind::kClosed, "given up");
      if (test.refuses) co_return fail(ErrorKind::kUnavailable, "connection refused");
      co_return make_job_control(test, argv, test.ends, true);
    }
    [[nodiscard]] std::string address(const Host&) const override { return "127.0.0.1"; }
    Supervised& test;
  };

  Supervised() {
    spec.job = "j";
    spec.job_dir = dir / "job";
    spec.state_dir = dir / "state";
    spec.socket = dir / "control";
    spec.command = {"train_cmd"};
    spec.cwd = "/";
    spec.launcher = StarterKind::kLocal;
    spec.elastic = true;
    spec.detached = true;
    spec.workers = spec.known_hosts = {Host{"", "a", 0}};
    spec.rules.stop_grace = kStopTimeout;
    options.volume_helper = {DT_SUPERVISOR_PROGRAM, "--volume-helper"};
    job_dir = spec.job_dir;
    journal_path = spec.state_dir + "/journal";
    socket = spec.socket;
    fs::create_directory(job_dir);
  }
  ~Supervised() {
    refuses = false;
    if (supervisor && !code) {
      supervisor->kill("the test is over");
      CHECK(until([&] { return code.has_value(); }));
    }
    for (const auto& end : ends) end->channel.close();
    CHECK(finished());
  }

  /// Starts from the journal of an earlier supervisor, which left no process.
  void resume(const std::vector<Record>& records) {
    options.resume = true;
    REQUIRE(io::make_private_dir(spec.state_dir));
    std::vector<wire::Frame> none;
    auto store = supervisor::JournalFile::open(journal_path, none);
    REQUIRE(store);
    for (const Record& record : records) {
      const wire::Frame frame = to_frame(record);
      REQUIRE(store->append(frame.type, frame.body));
    }
  }
  void start() {
    job_dir = spec.job_dir;
    supervisor =
        supervisor::make_supervisor(context, std::move(options), std::make_unique<Network>(*this));
    group.spawn(live());
  }
  io::awaitable<void> live() {
    const int ended = co_await supervisor->run();
    code = ended;
  }
  int end() {
    REQUIRE(until([&] { return code.has_value(); }));
    return *code;
  }
  /// Connection number `n`, once it sent a message of this type.
  AgentEnd& told(std::size_t n, std::uint16_t type) {
    REQUIRE(until([&] { return ends.size() > n && ends[n]->was_told(type); }));
    return *ends[n];
  }
  io::awaitable<std::string> ask(std::string request) {
    auto client = co_await io::ControlClient::connect(socket);
    if (!client) co_return client.error().message;
    auto reply = co_await (*client)->ask(std::move(request));
    co_return reply ? *reply : reply.error().message;
  }
  std::string host_worker() { return slurp(job_dir + "/host_worker"); }
};

/// Worker 0 opens a kvstore: workers may join from now on.
inline void open_store(Supervised& job, AgentEnd& agent) {
  FromProcess opened;
  opened.process = {Role::kWorker, 0};
  opened.type = OpenedKvStore::kType;
  opened.body = wire::body_of(OpenedKvStore{"dist_sync"});
  agent.channel.send(opened);
  REQUIRE(job.until([&] {
    return job.wait(job.ask(R"({"op":"status"})")).find(R"("not_open":"")") != std::string::npos;
  }));
}

/// The first records of a job's journal.
inline std::vector<Record> begun() {
  const Host host{"", "a", 0};
  return {JobBegan{{host}, {}}, TermBegan{Term(1)}, AgentKnown{host, "boot", 7}};
}

}  // namespace dt::test
