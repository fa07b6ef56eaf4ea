#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "test/launcher/agent/agent_fixture.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

TEST_CASE("agent: processes go on without a link, and the next one hears what happened meanwhile",
          "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  link->send(
      shell(worker(1), "until [ -e " + f + "/go ]; do sleep 0.02; done; echo meanwhile; exit 5"));
  link->send(shell(worker(2), "echo up; exec sleep 1000"));
  REQUIRE(site.wait(
      [&] { return link->out.contains(worker(2)) && link->started.contains(worker(1)); }));
  const auto pids = link->started;
  const auto incarnation = link->states[0].incarnation;
  link->close();
  std::ofstream(f + "/go") << "go";
  REQUIRE(site.wait([&] { return !alive(pids.at(worker(1))[0]); }));

  auto again = site.attach(1, "node1", {"--start"}, link.get());
  REQUIRE(site.wait([&] { return again->states.size() == 1; }));
  CHECK(again->states[0].incarnation == incarnation);
  REQUIRE(report_of(again->states[0], 2));
  CHECK(report_of(again->states[0], 2)->pid == pids.at(worker(2))[0]);
  CHECK_FALSE(report_of(again->states[0], 2)->exit);
  REQUIRE(site.wait([&] { return exited(*again, 1); }));
  CHECK(again->out[worker(1)] == "meanwhile\n");
  CHECK(again->exits[worker(1)][0] == ExitStatus{5, 0});
  CHECK_FALSE(again->output_after_exit);

  // Not acknowledged: reported to the next one too; acknowledged: no more.
  again->close();
  auto third = site.attach(1);
  REQUIRE(site.wait([&] { return third->states.size() == 1; }));
  REQUIRE(report_of(third->states[0], 1));
  CHECK(report_of(third->states[0], 1)->exit == ExitStatus{5, 0});
  // An ack still on its way when the next link takes over is lost, and sent again.
  const ProcessReport* ended = nullptr;
  do {
    third->send(ack_of(1));
    third->send(ack_of(2));  // still running: kept
    third = site.attach(1);
    REQUIRE(site.wait([&] { return third->states.size() == 1; }));
    ended = report_of(third->states[0], 1);
    CHECK(report_of(third->states[0], 2));
  } while (ended);
}

TEST_CASE("agent: a newer supervisor replaces an older one, a lower term is refused", "[agent]") {
  Site site;
  auto first = site.attach(5);
  REQUIRE(site.wait([&] { return first->states.size() == 1; }));
  auto second = site.attach(6);
  REQUIRE(site.wait([&] { return second->states.size() == 1 && first->ended; }));
  auto old = site.attach(5);
  REQUIRE(site.wait([&] { return old->ended; }));
  REQUIRE(old->refusals.size() == 1);
  CHECK(old->refusals[0].why.find("term 6") != std::string::npos);
  CHECK(old->states.empty());
  const auto beats = second->beats;
  CHECK(site.wait([&] { return second->beats > beats + 2; }));
  CHECK_FALSE(second->ended);
}

TEST_CASE(
    "agent: messages go both ways unread, and the latest of each type waits for who is not there",
    "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  link->send(
      shell(worker(1), "echo $DT_TOKEN > " + f + "/token; echo $DT_AGENT_SOCKET; sleep 1000"));
  ToProcess message;
  message.process = worker(1);
  message.type = Release::kType;
  message.body = "old";
  link->send(message);
  message.body = "new";
  link->send(message);
  REQUIRE(site.wait([&] { return link->out.contains(worker(1)); }));
  std::string socket = link->out[worker(1)];
  socket.pop_back();
  Identify identify;
  identify.process = worker(1);
  std::ifstream(f + "/token") >> identify.token;

  auto process = connect_to(site, socket);
  process->send(identify);
  REQUIRE(site.wait([&] { return process->frames.size() == 1; }));
  CHECK(process->frames[0] == wire::Frame{Release::kType, "new"});
  message.body = "direct";
  link->send(message);
  REQUIRE(site.wait([&] { return process->frames.size() == 2; }));
  CHECK(process->frames[1].body == "direct");

  process->send_raw(wire::frame(Arrive::kType, "first"));
  process->send_raw(wire::frame(Arrive::kType, "second"));
  REQUIRE(site.wait([&] { return link->said.size() == 2; }));
  CHECK(link->said[0].body == "first");
  link->close();
  process->send_raw(wire::frame(Arrive::kType, "third"));
  process->send_raw(wire::frame(Progress::kType, "p"));
  bool seen = false;
  for (int tries = 0; tries < 100 && !seen; ++tries) {
    auto again = site.attach(1);
    REQUIRE(site.wait([&] { return again->states.size() == 1; }));
    const auto said = report_of(again->states[0], 1)->said;
    seen = said.size() == 2 && said[0] == std::pair(Arrive::kType, std::string("third")) &&
           said[1] == std::pair(Progress::kType, std::string("p"));
  }
  CHECK(seen);
  CHECK_FALSE(process->ended);
}

TEST_CASE("agent: strangers on its socket change nothing", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo up; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.contains(worker(1)); }));
  const std::string socket = site.socket();
  struct stat st {};
  REQUIRE(::stat(socket.c_str(), &st) == 0);
  CHECK((st.st_mode & 0777) == 0600);

  auto garbage = connect_to(site, socket);
  garbage->send_raw("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  CHECK(site.wait([&] { return garbage->ended; }));
  auto liar = connect_to(site, socket);
  Identify identify;
  identify.process = worker(1);
  identify.token = "guessed";
  liar->send(identify);
  liar->send_raw(wire::frame(Arrive::kType, "x"));
  CHECK(site.wait([&] { return liar->ended; }));
  auto other = connect_to(site, socket);
  AgentHello hello;
  hello.job = "another-job";
  hello.host = "node1";
  hello.term = Term(99);
  other->send(hello);
  CHECK(site.wait([&] { return other->ended; }));
  CHECK(other->refusals.size() == 1);
  std::vector<std::unique_ptr<Link>> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to(site, socket));
  const auto dropped = [&] {
    std::size_t n = 0;
    for (const auto& one : silent) n += one->ended;
    return n;
  };
  CHECK(site.wait([&] { return dropped() >= 60; }));
  // Silent connections do not block others forever.
  CHECK(site.wait([&] { return dropped() == silent.size(); }));

  CHECK(link->said.empty());
  CHECK_FALSE(link->ended);
  CHECK(link->states.size() == 1);
  CHECK(alive(link->started[worker(1)][0]));
}

TEST_CASE("agent: output without a reader never blocks the process and is bounded", "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  const std::string script = "until [ -e " + f +
                             "/go ]; do sleep 0.02; done; "
                             "head -c 30000000 /dev/zero | tr '\\0' a; echo; echo the end; "
                             "touch " +
                             f + "/done; sleep 1000";
  link->send(shell(worker(1), script));
  REQUIRE(site.wait([&] { return link->started.contains(worker(1)); }));
  std::string end = "a\nthe end\n";
  const auto done = [&] { return fs::exists(f + "/done"); };
  const auto total = [&](Link& of) { return of.out[worker(1)].size() + of.lost[worker(1)]; };
  SECTION("detached") {
    link->close();
    std::ofstream(f + "/go") << "go";
    REQUIRE(site.wait(done));
    link = site.attach(1, "node1", {"--start"}, link.get());
  }
  SECTION("attached, but the link does not move") {
    link->reading = false;
    REQUIRE(site.wait([&, n = 0]() mutable { return ++n > 5; }));
    std::ofstream(f + "/go") << "go";
    REQUIRE(site.wait(done));
    link->reading = true;
  }
  REQUIRE(site.wait([&] { return link->out[worker(1)].ends_with(end); }));
  CHECK(total(*link) == 30'000'001 + 8);
  CHECK(link->lost[worker(1)] > 0);
  CHECK(link->why_lost[worker(1)] == OutputLoss::kLink);
  CHECK(link->out[worker(1)].size() < (std::size_t{12} << 20));
}

TEST_CASE("agent: links that break again and again lose and double no byte of output", "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  link->send(shell(worker(1),
                   "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo out $i; echo err $i >&2; "
                   "done; until [ -e " +
                       f + "/go ]; do sleep 0.02; done"));
  std::string out;
  std::string err;
  const auto collect = [&](Link& from) {
    out += from.out[worker(1)];
    err += from.err[worker(1)];
    CHECK(from.gaps.empty());
    CHECK(from.lost[worker(1)] == 0);
  };
  REQUIRE(site.wait([&] { return link->started.contains(worker(1)); }));
  for (std::size_t cut = 1; cut <= 12; ++cut) {
    const std::size_t before = link->received[worker(1)];
    site.wait([&] { return link->received[worker(1)] > before; }, 100ms);
    auto next = site.attach(1, "node1", {"--start"}, link.get());
    collect(*link);
    link = std::move(next);
  }
  std::ofstream(f + "/go") << "go";
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  collect(*link);
  std::string expected_out;
  std::string expected_err;
  for (int i = 1; i <= 3000; ++i) {
    expected_out += "out " + std::to_string(i) + "\n";
    expected_err += "err " + std::to_string(i) + "\n";
  }
  CHECK(out == expected_out);
  CHECK(err == expected_err);
}

TEST_CASE("agent: random and damaged frames on every kind of connection leave it working",
          "[agent]") {
  const auto seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t n) { return random() % n; };
  Site site;
  auto link = site.attach(1);
  link->send(shell(worker(1), "echo $DT_TOKEN; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const std::string socket = site.socket();
  const auto agent = site.agent();
  Identify identify;
  identify.process = worker(1);
  identify.token = link->out[worker(1)].substr(0, 32);
  AgentHello hello;
  hello.job = site.job;
  hello.host = "node1";
  hello.term = Term(1);
  StopProcess stop = stop_of(99, 10);
  ToProcess to;
  to.process = worker(1);
  to.type = 3;
  to.body = "xyz";
  const std::vector<std::string> good = {
      wire::frame(identify), wire::frame(hello),     wire::frame(stop),
      wire::frame(to),       wire::frame(ack_of(1)), wire::frame(shell(worker(1), "true"))};
  for (int round = 0; round < 60; ++round) {
    auto peer = connect_to(site, socket);
    const auto kind = below(3);
    if (kind == 1) peer->send(hello);
    if (kind == 2) peer->send(identify);
    for (std::size_t i = 0; i < 20; ++i) {
      std::string bytes = good[below(good.size())];
      if (below(2) == 0) {
        bytes[below(bytes.size())] = static_cast<char>(below(256));
      } else {
        std::string body(below(40), '\0');
        for (char& c : body) c = static_cast<char>(below(3) == 0 ? below(256) : 0);
        const auto type = static_cast<std::uint16_t>(below(130));
        // The agent would obey these.
        if (type == Shutdown::kType || type == StartProcess::kType) continue;
        bytes = wire::frame(type, body);
      }
      peer->send_raw(bytes);
    }
    peer->send_raw(std::string(6, '\xff'));  // no frame can be that long
    REQUIRE(site.wait([&] { return peer->ended || peer->all_sent(); }));
  }
  auto last = site.attach(std::numeric_limits<std::uint64_t>::max());
  REQUIRE(site.wait([&] { return last->states.size() == 1; }));
  CHECK(site.agent() == agent);
  last->send(shell(worker(1'000'000), "echo fine"));
  CHECK(site.wait([&] { return exited(*last, 1'000'000); }));
}

TEST_CASE(
    "agent: a message too large for the supervisor's link costs the process's connection only",
    "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo $DT_TOKEN; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.contains(worker(1)); }));
  Identify identify;
  identify.process = worker(1);
  identify.token = link->out[worker(1)].substr(0, 32);
  auto process = connect_to(site, site.socket());
  process->send(identify);
  process->send_raw(wire::frame(Progress::kType, "small"));
  REQUIRE(site.wait([&] { return link->said.size() == 1; }));
  // A frame of the largest size: with a header around it, it is too large.
  process->send_raw(wire::frame(GivingUp::kType, std::string(std::size_t{16} << 20, 'x')));
  CHECK(site.wait([&] { return process->ended; }));
  const auto beats = link->beats;
  CHECK(site.wait([&] { return link->beats > beats + 3 || link->ended; }));
  CHECK_FALSE(link->ended);
  link = site.attach(1);  // its report contains the process's earlier messages
  REQUIRE(site.wait([&] { return link->states.size() == 1 || link->ended; }));
  REQUIRE(link->states.size() == 1);
  CHECK(report_of(link->states[0], 1)->said.size() == 1);
}
