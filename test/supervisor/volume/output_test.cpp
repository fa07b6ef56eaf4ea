#include "supervisor/volume/output.h"

#include "test/supervisor/loop.h"

using namespace dt;
using namespace dt::test;
using supervisor::ProcessOutput;

namespace {

struct Shown : VolumeLoop {
  TempDir dir;
  std::string console;
  std::unique_ptr<ProcessOutput> output;

  explicit Shown(bool prefix = true) {
    ProcessOutput::Options options;
    options.folder = dir.path();
    options.prefix = prefix;
    auto show = [this](bool is_stderr, std::string_view text) {
      console += (is_stderr ? "E " : "O ");
      console += text;
    };
    output = std::make_unique<ProcessOutput>(volume, options, show);
    group.spawn(output->run());
  }
  ~Shown() {
    volume.stop();
    io::asio::post(context, [this] { group.cancel(); });
    finished();
  }
  void say(ProcessId process, const std::string& bytes, bool is_stderr = false,
           std::uint64_t lost = 0) {
    Output message;
    message.process = process;
    message.bytes = bytes;
    message.is_stderr = is_stderr;
    message.lost_before = lost;
    output->write(message);
  }
};

const ProcessId kWorker3{Role::kWorker, 3};
const ProcessId kServer0{Role::kServer, 0};

Host host(const std::string& name) {
  Host out;
  out.name = name;
  return out;
}

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

TEST_CASE("output: what a host had to drop is said in the file", "[output]") {
  Shown s;
  s.output->open(kWorker3, host("h"));
  s.say(kWorker3, "a\n");
  s.say(kWorker3, "b\n", false, 77);
  s.output->close_all();
  REQUIRE(s.wait(s.volume.drain(std::chrono::seconds(10))));
  const std::string file = slurp(s.dir / "worker-3.log");
  CHECK(file.find("77 bytes") != std::string::npos);
  CHECK(file.ends_with("b\n"));
}
