#include "core/base/wire.h"

#include "core/protocol/control_messages.h"
#include "test/support/catch.h"

using namespace dt;

TEST_CASE("wire: a message survives the way through bytes", "[wire]") {
  AgentState state;
  state.boot_id = "b";
  state.incarnation = 0xfedcba9876543210;
  ProcessReport report;
  report.process = {Role::kServer, 7};
  report.pid = -1;
  report.exit = ExitStatus{0, 9};
  report.said = {{80, std::string("\0x\n", 3)}};
  state.processes = {report};

  const auto back = wire::parse<AgentState>(wire::body_of(state));
  REQUIRE(back);
  CHECK(back->incarnation == state.incarnation);
  REQUIRE(back->processes.size() == 1);
  CHECK(back->processes[0].process == report.process);
  CHECK(back->processes[0].pid == -1);
  CHECK(back->processes[0].exit == report.exit);
  CHECK(back->processes[0].said == report.said);
}

TEST_CASE("wire: what a driver does not tell is missing after the way, too", "[wire]") {
  GpuHealth health;
  GpuReport gpu;
  gpu.index = 3;
  gpu.uuid = "GPU-3";
  gpu.name = "H";
  gpu.busy_percent = 0;
  gpu.memory_total = 0xfedcba9876543210;
  gpu.ecc_recent = 7;
  gpu.remapping_failed = true;
  gpu.held_back = 0x40;
  gpu.unanswered = "GPU is lost";
  health.gpus = {GpuReport(), gpu};
  health.trouble = "NVML";
  health.workers = {{WorkerId(4), {1, 0}}};
  const auto back = wire::parse<GpuHealth>(wire::body_of(health));
  REQUIRE(back);
  CHECK(*back == health);
  CHECK_FALSE(back->gpus[1].power_mw);
}

TEST_CASE("wire: a body cut anywhere, or with a byte too many, is refused", "[wire]") {
  ServerCommit commit;
  commit.contributors = {WorkerId(1), WorkerId(2)};
  const std::string body = wire::body_of(commit);
  for (std::size_t n = 0; n < body.size(); ++n)
    CHECK_FALSE(wire::parse<ServerCommit>(std::string_view(body).substr(0, n)));
  CHECK_FALSE(wire::parse<ServerCommit>(body + "x"));
  CHECK(wire::parse<ServerCommit>(body));
}

TEST_CASE("wire: a length that the bytes cannot hold takes no memory", "[wire]") {
  wire::Writer w;
  w.put(std::uint32_t{0xffffffff});
  const std::string four_gib = w.take();
  std::vector<std::string> v;
  wire::Reader r(four_gib);
  r.get(v);
  CHECK_FALSE(r.ok());
  CHECK(v.capacity() == 0);
}

TEST_CASE("wire: frames come out whole however the stream is cut", "[wire]") {
  const std::string stream =
      wire::frame(Beat{1}) + wire::frame(GivingUp{"no"}) + wire::frame(std::uint16_t{9}, "");
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    wire::FrameDecoder decoder;
    std::vector<wire::Frame> frames;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      decoder.feed(std::string_view(stream).substr(at, step));
      for (auto f = decoder.next(); f && *f; f = decoder.next()) frames.push_back(**f);
    }
    REQUIRE(frames.size() == 3);
    CHECK(frames[1].type == GivingUp::kType);
    CHECK(wire::parse<GivingUp>(frames[1].body)->why == "no");
    CHECK(frames[2] == wire::Frame{9, ""});
  }
}

TEST_CASE("wire: an announced length over the limit breaks the stream at once", "[wire]") {
  wire::FrameDecoder decoder(100);
  wire::Writer w;
  w.put(std::uint32_t{1000});
  decoder.feed(w.take());
  CHECK_FALSE(decoder.next());
  decoder.feed(wire::frame(Beat{1}));
  CHECK_FALSE(decoder.next());
}
