#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>

#include "test/launcher/agent_fixture.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// The number a script wrote into `<folder>/<name>`, once the line is whole.
pid_t pid_in(Site& site, const std::string& name) {
  pid_t pid = 0;
  site.wait([&] {
    std::ifstream file(site.folder + "/" + name);
    std::string line;
    if (std::getline(file, line) && !file.eof()) pid = std::stoi(line);
    return pid != 0;
  });
  return pid;
}

bool exited(const Link& link, std::uint32_t id) { return link.exits.contains(worker(id)); }

StopProcess stop_of(std::uint32_t id, std::uint32_t grace_ms) {
  StopProcess stop;
  stop.process = worker(id);
  stop.grace_ms = grace_ms;
  return stop;
}

AckExit ack_of(std::uint32_t id) {
  AckExit ack;
  ack.process = worker(id);
  return ack;
}

const ProcessReport* report_of(const AgentState& state, std::uint32_t id) {
  for (const auto& report : state.processes)
    if (report.process == worker(id)) return &report;
  return nullptr;
}

/// A connection to the agent's socket, as a worker would make.
std::unique_ptr<Link> connect_to(Site& site, const std::string& path) {
  io::UnixSocket socket(site.context);
  socket.connect(io::asio::local::stream_protocol::endpoint(path));
  return std::make_unique<Link>(site.context, io::unix_stream(std::move(socket)));
}

}  // namespace

TEST_CASE("agent: a process starts, its output arrives whole and before its exit", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  CHECK(link->states[0].processes.empty());
  CHECK(link->states[0].cores > 0);
  CHECK_FALSE(link->states[0].boot_id.empty());
  link->send(shell(worker(1), "echo hello; echo oops >&2; exit 3"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->out[worker(1)] == "hello\n");
  CHECK(link->err[worker(1)] == "oops\n");
  CHECK(link->exits[worker(1)][0] == ExitStatus{3, 0});
  CHECK(link->started[worker(1)].size() == 1);
  CHECK_FALSE(link->output_after_exit);
}

TEST_CASE("agent: binary output and a 10 MB line arrive byte for byte", "[agent]") {
  Site site;
  auto link = site.attach();
  std::string binary;
  for (int i = 0; i < 256; ++i) binary.push_back(static_cast<char>(i));
  std::ofstream(site.folder + "/blob", std::ios::binary) << binary;
  link->send(
      shell(worker(1), "cat " + site.folder + "/blob; head -c 10000000 /dev/zero | tr '\\0' x"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  const std::string& out = link->out[worker(1)];
  CHECK(out.size() == binary.size() + 10'000'000);
  CHECK(out.substr(0, binary.size()) == binary);
  CHECK(out.find_first_not_of('x', binary.size()) == std::string::npos);
  CHECK(link->lost[worker(1)] == 0);
}

TEST_CASE("agent: environment and arguments arrive intact, with the agent's own marks", "[agent]") {
  Site site;
  auto link = site.attach();
  StartProcess start;
  start.process = worker(7);
  start.argv = {"/bin/sh", "-c",
                R"(printf '%s|%s|%s|%s|%s' "$1" "$ODD" "$PWD" "${DT_MARK%/*}" "$DT_TOKEN")", "sh",
                "two  words 'and' \"quotes\"\n$HOME"};
  start.env = {{"ODD", "a=b \n\"c\" $d"}};
  start.cwd = site.folder;
  link->send(start);
  REQUIRE(site.wait([&] { return exited(*link, 7); }));
  const std::string expected = "two  words 'and' \"quotes\"\n$HOME|a=b \n\"c\" $d|" + site.folder +
                               "|" + site.job + "/node1|";
  CHECK(link->out[worker(7)].substr(0, expected.size()) == expected);
  CHECK(link->out[worker(7)].size() == expected.size() + 32);
}

TEST_CASE("agent: a signal that ends a process is reported as such", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "kill -SEGV $$"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->exits[worker(1)][0] == ExitStatus{0, SIGSEGV});
}

TEST_CASE("agent: a command that does not exist is told by name with the remedy", "[agent]") {
  Site site;
  auto link = site.attach();
  StartProcess start;
  start.process = worker(1);
  start.argv = {"no-such-train-cmd"};
  link->send(start);
  REQUIRE(site.wait([&] { return link->failures.contains(worker(1)); }));
  const std::string why = link->failures[worker(1)][0];
  CHECK(why.find("no-such-train-cmd: not found on host node1") != std::string::npos);
  CHECK(why.find("shared volume") != std::string::npos);
  CHECK(link->started.empty());

  start.process = worker(2);
  start.argv = {"/etc/passwd"};
  link->send(start);
  REQUIRE(site.wait([&] { return link->failures.contains(worker(2)); }));
  CHECK(link->failures[worker(2)][0].find("chmod +x") != std::string::npos);
}

TEST_CASE("agent: a folder that cannot be entered is replaced by home, and said", "[agent]") {
  Site site;
  auto link = site.attach();
  auto start = shell(worker(1), "pwd");
  start.cwd = "/no/such/folder";
  link->send(start);
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->err[worker(1)].find("cannot enter /no/such/folder") != std::string::npos);
  CHECK(link->exits[worker(1)][0].clean());
}

TEST_CASE("agent: StartProcess twice starts once, also after its exit was acknowledged",
          "[agent]") {
  Site site;
  auto link = site.attach();
  const auto start = shell(worker(1), "echo $$ >> " + site.folder + "/starts");
  link->send(start);
  link->send(start);
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  link->send(ack_of(1));
  link->send(ack_of(1));
  link->send(start);
  REQUIRE(site.wait([&] { return link->exits[worker(1)].size() >= 2; }));
  std::ifstream file(site.folder + "/starts");
  std::string line;
  int lines = 0;
  while (std::getline(file, line)) ++lines;
  CHECK(lines == 1);
}

TEST_CASE("agent: stop is TERM first, and KILL for who ignores it", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(
      shell(worker(1), "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"));
  link->send(shell(worker(2), "trap '' TERM; echo up; while :; do sleep 0.05; done"));
  REQUIRE(site.wait([&] { return link->out.size() == 2; }));
  link->send(stop_of(1, 10'000));
  link->send(stop_of(2, 300));
  REQUIRE(site.wait([&] { return exited(*link, 1) && exited(*link, 2); }));
  CHECK(link->out[worker(1)] == "up\nbye\n");
  CHECK(link->exits[worker(1)][0].clean());
  CHECK(link->exits[worker(2)][0] == ExitStatus{0, SIGKILL});
}

TEST_CASE("agent: a shorter grace overrules a longer one, and a stopped process can be stopped",
          "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "trap '' TERM; echo up; kill -STOP $$; sleep 100"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  link->send(stop_of(1, 3'600'000));
  link->send(stop_of(1, 0));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->exits[worker(1)][0] == ExitStatus{0, SIGKILL});
}

TEST_CASE("agent: what a process leaves behind dies before its exit is told", "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  SECTION("by itself") {
    link->send(shell(worker(1), "setsid sleep 1000 & echo $! > " + f +
                                    "/a; sleep 1000 & echo $! > " + f +
                                    "/b; (setsid env -i sleep 1000 & echo $! > " + f +
                                    "/c); until [ -s " + f + "/go ]; do sleep 0.02; done"));
  }
  SECTION("when stopped") {
    link->send(shell(worker(1), "setsid sleep 1000 & echo $! > " + f +
                                    "/a; sleep 1000 & echo $! > " + f +
                                    "/b; setsid env -i sleep 1000 & echo $! > " + f +
                                    "/c; trap 'exit 0' TERM; while :; do sleep 0.05; done"));
  }
  // Somebody else's leftovers of the same agent stay.
  link->send(shell(worker(2), "setsid sleep 1000 & echo $! > " + f + "/d; wait"));
  const pid_t own_session = pid_in(site, "a");
  const pid_t in_group = pid_in(site, "b");
  const pid_t nameless = pid_in(site, "c");
  const pid_t other = pid_in(site, "d");
  REQUIRE(site.wait([&] { return alive(own_session) && alive(in_group) && alive(other); }));
  std::ofstream(f + "/go") << "go\n";
  link->send(stop_of(1, 5000));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK_FALSE(alive(own_session));
  CHECK_FALSE(alive(in_group));
  CHECK(alive(other));
  link->send(stop_of(2, 0));
  REQUIRE(site.wait([&] { return exited(*link, 2); }));
  CHECK(site.wait([&] { return !alive(other) && !alive(nameless); }));
}

TEST_CASE("agent: kill -9 of the agent ends everything it started, whatever it did to hide",
          "[agent]") {
  Site site;
  auto link = site.attach();
  const std::string f = site.folder;
  link->send(shell(worker(1), "trap '' TERM HUP; setsid sleep 1000 & echo $! > " + f +
                                  "/a; setsid env -i sleep 1000 & echo $! > " + f +
                                  "/b; (setsid env -i sleep 1000 & echo $! > " + f + "/c); wait"));
  std::vector<pid_t> all = {pid_in(site, "a"), pid_in(site, "b"), pid_in(site, "c")};
  REQUIRE(site.wait([&] { return link->started.contains(worker(1)); }));
  all.push_back(link->started[worker(1)][0]);
  for (const pid_t pid : all) REQUIRE(alive(pid));
  const pid_t guard = site.guard_pid();
  REQUIRE(guard != 0);
  bool replaced = false;
  SECTION("with its first guard") {}
  SECTION("with a replaced guard") {
    replaced = true;
    ::kill(guard, SIGKILL);
    REQUIRE(site.wait([&] {
      const pid_t now = site.guard_pid();
      return now != 0 && now != guard;
    }));
  }
  const auto killed_at = std::chrono::steady_clock::now();
  ::kill(site.agent_pid(), SIGKILL);
  const auto gone = [&](std::size_t i) { return !alive(all[i]); };
  CHECK(site.wait([&] { return gone(0) && gone(3) && site.guard_pid() == 0; }));
  CHECK(std::chrono::steady_clock::now() - killed_at < 1s);
  CHECK(site.wait([&] { return link->ended; }));
  CHECK(site.socket().empty());
  if (!replaced) {  // a replacement cannot find who changed both session and environment
    CHECK(gone(1));
    CHECK(gone(2));
  }
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
}

TEST_CASE("agent: its guard cannot be ended by polite signals", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const pid_t guard = site.guard_pid();
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE}) ::kill(guard, number);
  link->send(shell(worker(1), "echo up; sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  CHECK(alive(guard));
  CHECK(site.guard_pid() == guard);
  for (const auto& entry : fs::directory_iterator("/proc/" + std::to_string(guard) + "/fd")) {
    INFO(fs::read_symlink(entry.path()).string());
    CHECK(std::stoi(entry.path().filename().string()) <= 1);
  }
}

TEST_CASE("agent: after kill -9 a new agent has another incarnation and nothing of the old one",
          "[agent]") {
  Site site;
  auto first = site.attach();
  first->send(shell(worker(1), "setsid sleep 1000 & echo up; wait"));
  REQUIRE(site.wait([&] { return first->out.size() == 1; }));
  ::kill(site.agent_pid(), SIGKILL);
  std::unique_ptr<Link> second;  // the dying agent's socket may still take a first attempt
  do {
    second = site.attach(2);
    REQUIRE(site.wait([&] { return second->states.size() == 1 || second->ended; }));
  } while (second->ended);
  CHECK(second->states[0].incarnation != first->states[0].incarnation);
  CHECK(second->states[0].machine == first->states[0].machine);
  CHECK(second->states[0].processes.empty());
  CHECK(site.marked().empty());
}

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

TEST_CASE("agent: messages go both ways unread; the latest of each type waits for who is not there",
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
  // Silent ones do not keep others out for ever.
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

TEST_CASE("agent: without a supervisor for too long it stops everything and is gone", "[agent]") {
  Site site;
  site.orphan_timeout_ms = 300;
  auto link = site.attach();
  link->send(shell(worker(1), "setsid sleep 1000 & echo up; wait"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const pid_t agent = site.agent_pid();
  const pid_t guard = site.guard_pid();
  link->close();
  CHECK(site.wait([&] { return !alive(agent) && !alive(guard); }));
  CHECK(site.marked().empty());
  CHECK_FALSE(fs::exists(site.folder + "/dtlaunch/" + site.job));
}

TEST_CASE("agent: a supervisor that stops saying anything on an open link is gone too", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo up; exec sleep 1000"));
  AgentHello hello;
  hello.job = site.job;
  hello.host = "node1";
  hello.term = Term(1);
  hello.beat_ms = 20;
  hello.orphan_timeout_ms = 400;
  link->send(hello);
  REQUIRE(site.wait([&] { return link->out.size() == 1 && link->beats > 2; }));
  CHECK(link->states.size() == 1);
  CHECK(site.wait([&] { return link->ended && site.agent_pid() == 0; }));
  CHECK(site.marked().empty());
}

TEST_CASE("agent: one that nobody ever attached to ends by itself", "[agent]") {
  Site site;
  auto link = site.attach(0, "node1", {"--start", "--lonely-timeout", "0.3"});
  REQUIRE(site.wait([&] { return site.agent_pid() != 0; }));
  CHECK(site.wait([&] { return site.agent_pid() == 0 && site.guard_pid() == 0; }));
}

TEST_CASE("agent: Shutdown and TERM stop everything and leave no file", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(
      shell(worker(1), "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"));
  link->send(
      shell(worker(2), "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.02; done"));
  REQUIRE(site.wait([&] { return link->out.size() == 2; }));
  const pid_t agent = site.agent_pid();
  const pid_t guard = site.guard_pid();
  SECTION("Shutdown") {
    Shutdown shutdown;
    shutdown.grace_ms = 500;
    link->send(shutdown);
  }
  SECTION("TERM") { ::kill(agent, SIGTERM); }
  REQUIRE(site.wait([&] { return link->ended; }));
  CHECK(link->exits[worker(1)][0] == ExitStatus{7, 0});
  CHECK(link->out[worker(1)] == "up\nbye\n");
  CHECK(link->exits[worker(2)][0] == ExitStatus{0, SIGKILL});
  CHECK(site.wait([&] { return !alive(agent) && !alive(guard); }));
  CHECK(site.marked().empty());
  CHECK_FALSE(fs::exists(site.folder + "/dtlaunch/" + site.job));
}

TEST_CASE("agent: two jobs, and two hosts of one job, on one machine do not touch each other",
          "[agent]") {
  Site site;
  auto one = site.attach(1, "node1");
  auto two = site.attach(1, "node2");
  for (auto* link : {&one, &two})
    (*link)->send(shell(worker(1), "setsid sleep 1000 & echo up; wait"));
  REQUIRE(site.wait([&] { return !one->out.empty() && !two->out.empty(); }));
  CHECK(one->states[0].machine == two->states[0].machine);
  one->send(Shutdown());
  REQUIRE(site.wait([&] { return one->ended; }));
  CHECK(alive(two->started[worker(1)][0]));
  CHECK_FALSE(two->ended);
  CHECK(site.marked().size() == 2);
}

TEST_CASE("agent: many attaches at once start one agent", "[agent]") {
  Site site;
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 8; ++i) links.push_back(site.attach(1));
  const auto answered = [&] {
    for (const auto& link : links)
      if (link->states.empty() && !link->ended) return false;
    return true;
  };
  REQUIRE(site.wait(answered));
  std::set<std::uint64_t> incarnations;
  for (const auto& link : links)
    for (const auto& state : link->states) incarnations.insert(state.incarnation);
  CHECK(incarnations.size() == 1);
  std::size_t open = 0;
  CHECK(site.wait([&] {
    open = 0;
    for (const auto& link : links) open += !link->ended;
    return open == 1;
  }));
}

TEST_CASE("agent: attach without --start says that no agent is there", "[agent]") {
  Site site;
  auto link = site.attach(1, "node1", {});
  REQUIRE(site.wait([&] { return link->ended; }));
  CHECK(link->end_reason.find("no agent of job " + site.job + " runs on host node1") !=
        std::string::npos);
}

TEST_CASE("local: bridges are reaped and out of the terminal's process group", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  pid_t bridge = 0;
  for (const pid_t pid : processes_with(site.job))
    if (pid != site.agent_pid() && pid != site.guard_pid()) bridge = pid;
  REQUIRE(bridge != 0);
  CHECK(::getsid(bridge) == bridge);
  link->close();
  CHECK(site.wait([&] { return !fs::exists("/proc/" + std::to_string(bridge)); }));
  CHECK(alive(site.agent_pid()));
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
  const auto agent = site.agent_pid();
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
        // These would do as they are told.
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
  CHECK(site.agent_pid() == agent);
  last->send(shell(worker(1'000'000), "echo fine"));
  CHECK(site.wait([&] { return exited(*last, 1'000'000); }));
}
