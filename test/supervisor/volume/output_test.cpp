#include "supervisor/volume/output.h"

#include <signal.h>

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using supervisor::ProcessOutput;

namespace {

Host host(const std::string& name) {
  Host out;
  out.name = name;
  return out;
}

struct Shown : VolumeLoop {
  TempDir dir;
  std::string console;
  std::vector<OutputRoom> rooms;
  std::unique_ptr<ProcessOutput> output;

  explicit Shown(bool prefix = true, std::optional<io::ShownOutput> shown = {},
                 std::size_t workers = 1) {
    ProcessOutput::Options options;
    options.folder = dir.path();
    options.prefix = prefix;
    options.shown = shown;
    options.workers = workers;
    auto show = [this](bool is_stderr, std::string_view text) {
      console += (is_stderr ? "E " : "O ");
      console += text;
    };
    auto give = [this](const Host&, const OutputRoom& room) {
      rooms.push_back(room);
      return true;
    };
    output = std::make_unique<ProcessOutput>(volume, options, show, give);
    group.spawn(output->run());
  }
  ~Shown() {
    volume.stop();
    io::asio::post(context, [this] { group.cancel(); });
    finished();
  }
  void say(ProcessId process, const std::string& bytes, bool is_stderr = false,
           std::uint64_t lost = 0, OutputLoss why = OutputLoss::kLink) {
    Output message;
    message.process = process;
    message.bytes = bytes;
    message.is_stderr = is_stderr;
    message.lost_before = lost;
    message.why_lost = why;
    output->write(host("h"), message);
  }
};

const ProcessId kWorker3{Role::kWorker, 3};
const ProcessId kServer0{Role::kServer, 0};

}  // namespace

TEST_CASE("output: each process's bytes are whole in its file, its lines prefixed on the console",
          "[output]") {
  Shown s;
  s.output->open(kWorker3, host("10.0.0.7"));
  s.output->open(kServer0, host("10.0.0.8"));
  s.say(kWorker3, "epoch 1 lo");
  s.say(kServer0, "ready\n", true);
  s.say(kWorker3, "ss 0.5\nhal");
  CHECK(s.console == "E [server 0 10.0.0.8] ready\nO [worker 3 10.0.0.7] epoch 1 loss 0.5\n");
  REQUIRE(s.until([&] { return slurp(s.dir / "worker-3.log") == "epoch 1 loss 0.5\nhal"; }));
  s.output->close(kWorker3);
  CHECK(s.console.ends_with("O [worker 3 10.0.0.7] hal\n"));
  s.output->close_all();
  REQUIRE(s.wait(s.volume.drain(std::chrono::seconds(10))));
  CHECK(slurp(s.dir / "server-0.log") == "ready\n");
}

TEST_CASE("output: binary and big output arrives byte for byte in the file", "[output]") {
  Shown s(false);
  s.output->open(kWorker3, host("h"));
  std::string all;
  for (int i = 0; i < 300; ++i) {
    std::string piece(10'000, static_cast<char>(i));
    s.say(kWorker3, piece);
    all += piece;
  }
  s.output->close_all();
  REQUIRE(s.wait(s.volume.drain(std::chrono::seconds(10))));
  CHECK(slurp(s.dir / "worker-3.log") == all);
}

TEST_CASE("output: what a host had to drop is said in the file, and who was slow", "[output]") {
  Shown s;
  s.output->open(kWorker3, host("h"));
  s.say(kWorker3, "a\n");
  s.say(kWorker3, "b\n", false, 77);
  s.say(kWorker3, "c\n", false, 7, OutputLoss::kSupervisor);
  REQUIRE(s.until([&] { return !slurp(s.dir / "worker-3.log").empty(); }));
  REQUIRE(::kill(s.volume.helper_pid(), SIGSTOP) == 0);
  s.say(kWorker3, "d\n");
  REQUIRE(s.until([&] { return s.volume.is_output_stalled(); }));
  REQUIRE(::kill(s.volume.helper_pid(), SIGCONT) == 0);
  REQUIRE(s.until([&] { return !s.volume.is_output_stalled(); }));
  s.say(kWorker3, "e\n", false, 5, OutputLoss::kVolume);
  s.output->close_all();
  REQUIRE(s.wait(s.volume.drain(std::chrono::seconds(10))));
  CHECK(slurp(s.dir / "worker-3.log") ==
        "a\n\n[dtlaunch: 77 bytes are missing here: the link to h was down]\nb\n"
        "\n[dtlaunch: 7 bytes are missing here: the supervisor was away]\nc\nd\n"
        "\n[dtlaunch: 5 bytes are missing here: the shared volume took nothing for 2 s]\ne\n");
}

TEST_CASE("output: a host gets more room as its output is written, none for what waits",
          "[output]") {
  Shown s;
  s.output->open(kWorker3, host("h"));
  const std::string all(kFirstOutputRoom, 'x');
  s.say(kWorker3, all);
  REQUIRE_FALSE(s.rooms.empty());
  REQUIRE(s.until([&] { return slurp(s.dir / "worker-3.log") == all; }));
  REQUIRE(s.wait(s.volume.drain(std::chrono::seconds(10))));
  REQUIRE(::kill(s.volume.helper_pid(), SIGSTOP) == 0);
  for (std::uint64_t said = all.size(); said < s.rooms.back().bytes; said += all.size())
    s.say(kWorker3, all);
  const std::uint64_t stopped = s.rooms.back().bytes;
  CHECK(stopped < (std::uint64_t{9} << 20));
  // Its processes learn that they need not wait.
  REQUIRE(s.until([&] { return s.rooms.back().is_stalled; }));
  CHECK(s.rooms.back().bytes == stopped);
  REQUIRE(::kill(s.volume.helper_pid(), SIGCONT) == 0);
  REQUIRE(s.until([&] { return s.rooms.back().bytes > stopped && !s.rooms.back().is_stalled; }));
}

namespace {

constexpr std::size_t kMany = ProcessOutput::kFewWorkers + 1;

ProcessId worker(std::uint32_t id) { return {Role::kWorker, id}; }

void open_workers(Shown& s, std::size_t count) {
  for (std::uint32_t id = 0; id < count; ++id) s.output->open(worker(id), host("h"));
}

}  // namespace

TEST_CASE("output: of many workers only the lead's lines are shown, and at once", "[output]") {
  Shown s(true, {}, kMany);
  std::optional<WorkerId> lead;
  int said = 0;
  s.output->lead = [&lead] { return lead; };
  s.output->on_lead_alone = [&said] { ++said; };
  open_workers(s, kMany);
  CHECK(said == 1);
  s.say(worker(0), "a\n");
  s.say(worker(1), "b\n");
  CHECK(s.console == "O [worker 0 h] a\n");  // without a view the lowest id leads
  lead = WorkerId(1);
  s.say(worker(0), "c\n");
  s.say(worker(1), "d\n", true);
  CHECK(s.console == "O [worker 0 h] a\nE [worker 1 h] d\n");
}

TEST_CASE("output: where the job has no view, the lead's end makes no other worker the lead",
          "[output]") {
  Shown s(true, io::ShownOutput::kLead);
  open_workers(s, 3);
  s.output->close(worker(0));
  s.say(worker(1), "a\n");
  CHECK(s.console.empty());
  for (std::uint32_t id = 1; id < 3; ++id) s.output->close(worker(id));
  for (const std::uint32_t id : {4U, 3U}) s.output->open(worker(id), host("h"));  // a new group
  s.say(worker(4), "b\n");
  s.say(worker(3), "c\n");
  CHECK(s.console == "O [worker 3 h] c\n");
}

TEST_CASE("output: a fifth worker makes them many", "[output]") {
  Shown s;
  int said = 0;
  s.output->on_lead_alone = [&said] { ++said; };
  open_workers(s, kMany - 1);
  s.say(worker(3), "a\n");
  CHECK(s.console == "O [worker 3 h] a\n");
  CHECK(said == 0);
  open_workers(s, kMany);
  s.say(worker(3), "b\n");
  CHECK(s.console == "O [worker 3 h] a\n");
  CHECK(said == 1);
}

TEST_CASE("output: the last lines of a worker that fails are shown, of the first ones",
          "[output]") {
  Shown s(true, io::ShownOutput::kLead);
  open_workers(s, 8);
  for (std::uint32_t id = 1; id < 8; ++id) {
    for (int line = 0; line < 20; ++line) s.say(worker(id), fmt::format("{} {}\n", id, line));
    s.say(worker(id), "why", true);
    s.output->close(worker(id));
  }
  CHECK(s.console.empty());
  for (std::uint32_t id = 1; id < 8; ++id) s.output->show_end_of(WorkerId(id));
  CHECK(s.console.find("[worker 1 h] 1 10\n") == std::string::npos);
  CHECK(s.console.find("O [worker 1 h] 1 11\n") != std::string::npos);
  CHECK(s.console.ends_with("E [worker 3 h] why\n"));
  const std::size_t before = s.console.size();
  s.output->show_end_of(WorkerId(1));
  CHECK(s.console.size() == before);
}

TEST_CASE("output: equal lines of many workers are one, and a worker's end waits for none",
          "[output]") {
  Shown s(true, io::ShownOutput::kAll, kMany);
  open_workers(s, kMany);
  for (std::uint32_t id = 0; id < kMany; ++id) s.say(worker(id), "step\nhalf a li");
  CHECK(s.console.empty());
  REQUIRE(s.until([&] { return !s.console.empty(); }));
  CHECK(s.console == "O [workers 0-4] step\n");
  s.output->close(worker(2));
  CHECK(s.console.ends_with("\nO [worker 2 h] half a li\n"));
}

TEST_CASE("output: none is shown if none is wanted, and lines as they are are not folded",
          "[output]") {
  Shown none(true, io::ShownOutput::kNone);
  none.output->open(kWorker3, host("h"));
  none.say(kWorker3, "a\n");
  none.output->close_all();
  CHECK(none.console.empty());
  Shown plain(false, io::ShownOutput::kAll, kMany);
  open_workers(plain, 2);
  plain.say(worker(0), "a\n");
  plain.say(worker(1), "a\n");
  CHECK(plain.console == "O a\nO a\n");
}
