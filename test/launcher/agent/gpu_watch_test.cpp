#include "launcher/agent/gpu_watch.h"

#include "io/nvml.h"
#include "test/launcher/agent/agent_fixture.h"
#include "test/support/catch.h"
#include "test/support/fake_driver.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
using launcher::GpuWatch;

namespace {

/// A watch over a fake driver, polled every 20 ms.
struct Watched {
  explicit Watched(const std::string& library, Duration silence = 30s)
      : watch(context.get_executor(), options(silence)) {
    const auto end = [this](std::exception_ptr) { has_ended = true; };
    io::asio::co_spawn(context, watch.run({{io::kNvmlVariable, library}}), end);
  }
  static GpuWatch::Options options(Duration silence) {
    GpuWatch::Options out;
    out.first = {};
    out.argv = {DT_AGENT_PROGRAM, "--gpus", "--interval", "0.02"};
    out.silence = silence;
    out.again = 20ms;
    return out;
  }
  bool wait(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!condition() && std::chrono::steady_clock::now() < until) context.run_for(5ms);
    return condition();
  }

  io::asio::io_context context;
  bool has_ended = false;
  GpuWatch watch;
};

std::vector<GpuHealth> health_of(const Link& link) {
  std::vector<GpuHealth> out;
  for (const auto& frame : link.frames)
    if (frame.type == GpuHealth::kType) out.push_back(*wire::parse<GpuHealth>(frame.body));
  return out;
}

}  // namespace

TEST_CASE("gpu watch: the figures, and a GPU that gets lost", "[gpus]") {
  const FakeDriver driver;
  Watched watched(driver.library());
  REQUIRE(watched.wait([&] { return watched.watch.gpus().size() == 2; }));
  CHECK(watched.watch.trouble().empty());
  driver.says("lost 1");
  CHECK(watched.wait([&] { return watched.watch.gpus()[1].unanswered == "GPU is lost"; }));
  watched.watch.stop();
  CHECK(watched.wait([&] { return watched.has_ended; }));
  CHECK(watched.watch.pid() == 0);
}

TEST_CASE("gpu watch: where there is no GPU it looks once and ends", "[gpus]") {
  Watched watched("/nowhere/libnvidia-ml.so.1");
  REQUIRE(watched.wait([&] { return watched.has_ended; }));
  CHECK(watched.watch.gpus().empty());
  CHECK(watched.watch.trouble().empty());
}

TEST_CASE("gpu watch: a driver that does not answer is trouble with a name, until it does",
          "[gpus]") {
  const FakeDriver driver;
  Watched watched(driver.library(), 500ms);
  SECTION("after it has answered for a while") {
    REQUIRE(watched.wait([&] { return watched.watch.gpus().size() == 2; }));
    driver.says("hang nvmlDeviceGetPowerUsage");
  }
  SECTION("from the first call on") { driver.says("hang nvmlInit_v2"); }
  REQUIRE(watched.wait([&] { return !watched.watch.trouble().empty(); }));
  CHECK(watched.watch.trouble().starts_with("NVML has not answered for more than 0.5 s: "));
  CHECK(watched.watch.trouble().find("(pid ") != std::string::npos);
  // The next process has a driver that works again.
  driver.says("");
  ::kill(watched.watch.pid(), SIGKILL);
  CHECK(watched.wait(
      [&] { return watched.watch.trouble().empty() && watched.watch.gpus().size() == 2; }));
}

TEST_CASE("gpu watch: a driver that is silent again is trouble again", "[gpus]") {
  const FakeDriver driver;
  Watched watched(driver.library(), 500ms);
  REQUIRE(watched.wait([&] { return watched.watch.gpus().size() == 2; }));
  for (int i = 0; i < 2; ++i) {
    ::kill(watched.watch.pid(), SIGSTOP);
    REQUIRE(watched.wait([&] { return !watched.watch.trouble().empty(); }));
    ::kill(watched.watch.pid(), SIGCONT);
    REQUIRE(watched.wait([&] { return watched.watch.trouble().empty(); }));
  }
}

TEST_CASE("gpu watch: a driver that kills whoever asks it takes nobody along", "[gpus]") {
  const FakeDriver driver;
  Watched watched(driver.library());
  SECTION("at first") { driver.says("crash nvmlDeviceGetName"); }
  SECTION("after it has answered for a while") {
    REQUIRE(watched.wait([&] { return watched.watch.gpus().size() == 2; }));
    driver.says("crash nvmlInit_v2\ncrash nvmlDeviceGetPowerUsage");
  }
  REQUIRE(watched.wait([&] { return !watched.watch.trouble().empty(); }));
  CHECK(watched.watch.trouble() ==
        "NVML is not asked: what asks it has ended with killed by signal 6 (ABRT)");
  CHECK(watched.watch.gpus().empty());  // old figures are dropped
  driver.says("");
  CHECK(watched.wait(
      [&] { return watched.watch.trouble().empty() && watched.watch.gpus().size() == 2; }));
}

TEST_CASE("agent: tells of the GPUs and whose they are, and again to the next supervisor",
          "[agent]") {
  const FakeDriver driver;
  Site site;
  auto link = site.attach();
  StartProcess start = shell(worker(1), "sleep 1000");
  start.env.emplace_back(io::kNvmlVariable, driver.library());
  start.env.emplace_back("CUDA_VISIBLE_DEVICES", "1");
  link->send(start);
  StartProcess other = shell(worker(2), "unset CUDA_VISIBLE_DEVICES; sleep 1000");
  link->send(other);
  using Numbers = std::vector<std::uint32_t>;
  const auto complete = [](const Link& heard) {
    const auto said = health_of(heard);
    return !said.empty() && said.back().workers.size() == 2;
  };
  REQUIRE(site.wait([&] { return complete(*link); }));
  const GpuHealth health = health_of(*link).back();
  CHECK(health.gpus.size() == 2);
  CHECK(health.workers[0] == std::pair(WorkerId(1), Numbers{1}));
  CHECK(health.workers[1].first == WorkerId(2));
  auto next = site.attach(2);
  REQUIRE(site.wait([&] { return complete(*next); }));
  CHECK(health_of(*next).back().gpus.size() == 2);
  // The watch continues after the last worker's end.
  next->send(StopProcess{worker(1), 0});
  next->send(StopProcess{worker(2), 0});
  REQUIRE(site.wait([&] { return health_of(*next).back().workers.empty(); }));
  driver.says("lost 0");
  CHECK(site.wait([&] { return health_of(*next).back().gpus.at(0).unanswered == "GPU is lost"; }));
}

TEST_CASE("agent: a worker that is stopped while it waits for the GPUs has ended, and never ran",
          "[agent]") {
  const FakeDriver driver("hang nvmlInit_v2");
  Site site;
  auto link = site.attach();
  StartProcess start = shell(worker(1), "exit 3");
  start.env.emplace_back(io::kNvmlVariable, driver.library());
  start.env.emplace_back("DT_GPUS_PER_WORKER", "auto");
  link->send(start);
  link->send(StopProcess{worker(1), 1000});
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->exits[worker(1)][0] == ExitStatus{0, SIGTERM});
  CHECK(link->started.empty());
}
