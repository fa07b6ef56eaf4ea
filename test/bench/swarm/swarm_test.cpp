/// Keeps the swarm alive: the supervisor trains with its hosts as with real ones.
#include "test/bench/swarm/swarm.h"

#include <fstream>
#include <memory>
#include <optional>

#include "core/protocol/exit_code.h"
#include "io/job/spec.h"
#include "supervisor/supervisor.h"
#include "test/bench/swarm/backend.h"
#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

namespace {

/// A job on hosts a, b, ... of a swarm, in this process.
struct SwarmJob : Loop {
  explicit SwarmJob(std::uint32_t hosts) : swarm(context.get_executor(), dir / "swarm") {
    REQUIRE(swarm.listen());
    group.spawn(swarm.run());
    course.epoch = 100ms;
    course.step = 20ms;
    options.spec.job = "j";
    options.spec.job_dir = dir / "job";
    options.spec.state_dir = dir / "state";
    options.spec.socket = dir / "control";
    options.spec.command = {"train_cmd"};
    options.spec.cwd = "/";
    options.spec.elastic = true;
    options.spec.detached = true;
    options.spec.poll_interval = 50ms;
    options.spec.rules.liveness.dead_after = 1s;
    for (std::uint32_t i = 0; i < hosts; ++i) options.spec.workers.push_back(host(i));
    options.spec.servers = {host(0), host(1)};
    options.spec.known_hosts = options.spec.workers;
    options.volume_helper = {DT_SUPERVISOR_PROGRAM, "--volume-helper"};
    fs::create_directory(dir / "job");
  }
  ~SwarmJob() {
    if (supervisor && !code) supervisor->kill("the test is over");
    CHECK((!supervisor || until([&] { return code.has_value(); })));
    swarm.stop();
    CHECK(finished());
  }
  static Host host(std::uint32_t i) {
    Host one;
    one.name = std::string(1, static_cast<char>('a' + i));
    return one;
  }
  void start() {
    auto backend = std::make_unique<swarm::SwarmBackend>(context.get_executor(), dir / "swarm");
    supervisor = supervisor::make_supervisor(context, std::move(options), std::move(backend));
    group.spawn(live());
  }
  io::awaitable<void> live() {
    const int ended = co_await supervisor->run();
    code = ended;
  }
  void write_hosts(std::uint32_t hosts) {
    std::ofstream file(dir / "job/host_worker");
    for (std::uint32_t i = 0; i < hosts; ++i) file << host(i).name << "\n";
  }
  [[nodiscard]] std::uint32_t epochs() {
    return static_cast<std::uint32_t>(swarm.world().began.size());
  }
  /// Members of the newest epoch, once all of them have begun it.
  [[nodiscard]] std::uint32_t members() {
    if (epochs() == 0) return 0;
    const auto& newest = swarm.world().tally.boundaries[swarm.world().began.rbegin()->first];
    return newest.releases.count == newest.world_size ? newest.world_size : 0;
  }

  TempDir dir;
  swarm::Swarm swarm;
  swarm::Course& course = swarm.world().course;
  supervisor::SupervisorOptions options;
  std::unique_ptr<supervisor::Supervisor> supervisor;
  std::optional<int> code;
};

}  // namespace

TEST_CASE("swarm: eight hosts train three epochs, and the job ends well") {
  SwarmJob job(8);
  job.course.epochs = 3;
  job.start();
  REQUIRE(job.until([&] { return job.code.has_value(); }));
  CHECK(*job.code == kExitOk);
  CHECK(job.epochs() == 3);
  for (const auto& [epoch, boundary] : job.swarm.world().tally.boundaries) {
    INFO(epoch.value);
    CHECK(boundary.world_size == 8);
    CHECK(boundary.releases.count == 8);
    CHECK(boundary.arrivals.count == 8);
    CHECK(boundary.releases.first >= boundary.arrivals.last);
  }
  CHECK(job.swarm.attached() == 0);
}

TEST_CASE("swarm: a job grows, shrinks and loses hosts") {
  SwarmJob job(8);
  job.start();
  REQUIRE(job.until([&] { return job.members() == 8; }));
  job.write_hosts(11);
  REQUIRE(job.until([&] { return job.members() == 11; }));
  CHECK(job.swarm.attached() == 11);
  job.write_hosts(10);
  REQUIRE(job.until([&] { return job.members() == 10; }));
  job.swarm.lose({"i", "j"});
  REQUIRE(job.until([&] { return job.members() == 8; }));
  CHECK(job.swarm.world().connected.size() == 8);
  job.swarm.bring_back();
  REQUIRE(job.until([&] { return job.members() == 10; }));
  job.supervisor->stop("enough");
  REQUIRE(job.until([&] { return job.code.has_value(); }));
  CHECK(*job.code == kExitInterrupted);
}
