#include <filesystem>
#include <fstream>

#include "test/launcher/agent/agent_fixture.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

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

TEST_CASE("agent: output waits for room, its process's exit does not, and it goes on after that",
          "[agent]") {
  Site site;
  site.room = 0;
  auto link = site.attach();
  link->send(shell(worker(1), "head -c 100000 /dev/zero | tr '\\0' x; exit 3"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->exits[worker(1)][0].code == 3);
  CHECK(link->out[worker(1)].size() == kFirstOutputRoom);
  link->send(ack_of(1));
  link->send(OutputRoom{50'000});
  REQUIRE(site.wait([&] { return link->out[worker(1)].size() >= 50'000; }));
  CHECK(link->out[worker(1)].size() == 50'000);
  const auto ends = [](const Link& of) {
    return std::count_if(of.frames.begin(), of.frames.end(),
                         [](const wire::Frame& f) { return f.type == OutputEnded::kType; });
  };
  CHECK(ends(*link) == 0);
  // A new link begins anew, from the byte that is wanted.
  auto again = site.attach(1, "node1", {"--start"}, link.get());
  REQUIRE(site.wait([&] { return again->out[worker(1)].size() >= kFirstOutputRoom; }));
  CHECK_FALSE(report_of(again->states[0], 1));
  again->send(OutputRoom{site.room = 1 << 20});
  REQUIRE(site.wait([&] { return ends(*again) == 1; }));
  CHECK(again->out[worker(1)] == std::string(50'000, 'x'));
  CHECK(again->gaps.empty());
}

TEST_CASE(
    "agent: at its end output waits for room, also without a grace, and says what it gives up",
    "[agent]") {
  Site site;
  site.room = 0;
  auto link = site.attach();
  link->send(shell(worker(1), "head -c 3000000 /dev/zero"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  const auto missing = [&] { return 3'000'000 - link->out[worker(1)].size(); };
  SECTION("as long as it is taken") {
    link->send(Shutdown{});
    std::uint64_t room = kFirstOutputRoom;
    for (int i = 0; i < 7; ++i) {  // longer than a farewell
      CHECK_FALSE(site.wait([&] { return link->ended; }, 500ms));
      link->send(OutputRoom{room += 50'000});
    }
    link->send(OutputRoom{std::uint64_t{1} << 40});
    REQUIRE(site.wait([&] { return link->ended; }));
    CHECK(missing() == 0);
  }
  SECTION("not on a volume that takes nothing") {
    link->send(OutputRoom{kFirstOutputRoom, true});
    link->send(Shutdown{});
    REQUIRE(site.wait([&] { return link->ended; }));
    CHECK(link->why_lost[worker(1)] == OutputLoss::kVolume);
  }
  SECTION("not where the job is killed") {
    link->send(Shutdown{0, true});
    REQUIRE(site.wait([&] { return link->ended; }));
    CHECK(link->why_lost[worker(1)] == OutputLoss::kKilled);
  }
  CHECK(link->lost[worker(1)] == missing());
}

TEST_CASE("agent: a process waits while its supervisor gives room, and not on a stalled volume",
          "[agent]") {
  Site site;
  site.room = 0;
  auto link = site.attach();
  const auto write = [&](std::uint32_t id) {
    link->send(
        shell(worker(id), "head -c 30000000 /dev/zero; : >" + site.folder + "/done; read x"));
  };
  const auto has_written = [&] { return std::filesystem::exists(site.folder + "/done"); };
  write(1);
  for (int i = 0; i < 8; ++i) {
    link->send(OutputRoom{kFirstOutputRoom});
    CHECK_FALSE(site.wait(has_written, 500ms));
  }
  link->send(OutputRoom{kFirstOutputRoom, true});
  REQUIRE(site.wait(has_written));
  link->send(OutputRoom{std::uint64_t{1} << 40});
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->why_lost[worker(1)] == OutputLoss::kVolume);
  CHECK(link->out[worker(1)].size() + link->lost[worker(1)] == 30'000'000);

  // Without any supervisor it goes on, too; the next one is told that there was none.
  std::filesystem::remove(site.folder + "/done");
  write(2);
  REQUIRE(site.wait([&] { return link->started.contains(worker(2)); }));
  link->close();
  REQUIRE(site.wait(has_written));
  auto next = site.attach(2);
  next->send(OutputRoom{std::uint64_t{1} << 40});
  REQUIRE(site.wait([&] { return exited(*next, 2); }));
  CHECK(next->why_lost[worker(2)] == OutputLoss::kSupervisor);
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

TEST_CASE("agent: ports that it keeps are free when the process they are for is executed",
          "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const AgentPlace place = link->states[0].place;
  CHECK(place.socket == site.socket());
  CHECK(place.master_port != 0);
  CHECK(place.root_port != 0);
  CHECK(place.root_port != place.master_port);
  // Without SO_REUSEADDR, at once: no other socket may have the port then.
  const auto binds = [&](std::uint32_t id, std::uint16_t port, Port given) {
    auto start = shell(worker(id), fmt::format("exec python3 -c 'import socket\n"
                                               "socket.socket().bind((\"\", {}))'",
                                               port));
    start.ports = given;
    link->send(start);
    REQUIRE(site.wait([&] { return exited(*link, id); }));
    return link->exits[worker(id)][0].clean();
  };
  CHECK_FALSE(binds(1, place.master_port, Port::kNone));
  CHECK_FALSE(binds(2, place.master_port, Port::kRoot));
  CHECK(binds(3, place.master_port, Port::kMaster));
  CHECK(binds(4, place.root_port, Port::kBoth));
  CHECK(binds(5, place.master_port, Port::kBoth));  // the next rank 0 there has the same
  CHECK_FALSE(binds(6, place.master_port, Port::kNone));

  // The port survives the supervisor: the agent reports it again.
  auto next = site.attach(2);
  REQUIRE(site.wait([&] { return next->states.size() == 1; }));
  CHECK(next->states[0].place == place);
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

TEST_CASE("agent: it tells what a process and those below it do, by their kernel", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "sleep 1000 & echo up; kill -STOP $$; wait"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  std::string text;
  const auto told = [&] {
    for (const auto& frame : link->frames)
      if (frame.type == ProcessState::kType)
        text = wire::parse<ProcessState>(frame.body).value().text;
    return !text.empty();
  };
  const auto ask = [&] {
    link->frames.clear();
    text.clear();
    AskProcess question;
    question.process = worker(1);
    link->send(question);
    return site.wait(told);
  };
  // Both may still be on their way there: the shell to its stop, sleep to its exec.
  const auto tells_both = [&] {
    const auto below = text.find("; sleep (pid ");
    return text.find("stopped (T)") < below && text.find("sleeping (S)", below) < text.size();
  };
  REQUIRE(site.wait([&] { return ask() && tells_both(); }));
  CHECK(text.find("sh (pid ") == 0);

  AskProcess nobody;
  nobody.process = worker(77);
  link->send(nobody);
  REQUIRE(ask());  // it ignores a question about an unknown process
  link->send(stop_of(1, 0));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
}

TEST_CASE("agent: it says whether a folder can be entered, and what its processes use", "[agent]") {
  Site site;
  auto link = site.attach();
  const auto ask = [&](const std::string& folder) {
    std::optional<int> error;
    link->frames.clear();
    link->send(CheckFolder{folder});
    REQUIRE(site.wait([&] {
      for (const auto& frame : link->frames)
        if (frame.type == FolderChecked::kType)
          if (const auto said = wire::parse<FolderChecked>(frame.body); said->folder == folder)
            error = said->error;
      return error.has_value();
    }));
    return *error;
  };
  CHECK(ask(site.folder) == 0);
  CHECK(ask(site.folder + "/nowhere") == ENOENT);
  CHECK(ask("/etc/passwd") == ENOTDIR);

  // 40 MB, held by a child of the process.
  link->send(
      shell(worker(1), "sh -c 'x=$(head -c 40000000 /dev/zero | tr \"\\0\" x); sleep 100'; :"));
  std::uint64_t most = 0;
  REQUIRE(site.wait([&] {
    for (const auto& frame : link->frames)
      if (frame.type == Usage::kType)
        if (const auto usage = wire::parse<Usage>(frame.body))
          for (const auto& [process, bytes] : usage->resident)
            if (process == worker(1)) most = std::max(most, bytes);
    return most > 40'000'000;
  }));
  link->send(stop_of(1, 0));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
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
  // Another process's leftovers of the same agent stay.
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

TEST_CASE("agent: the Python package of its version comes first, unless it is not wanted",
          "[agent]") {
  const fs::path package =
      fs::path(DT_AGENT_PROGRAM).parent_path().parent_path() / "lib/dtlaunch/dtkv.zip";
  Site site;
  auto link = site.attach();
  const auto modules = [&](std::uint32_t id, std::vector<std::pair<std::string, std::string>> env) {
    StartProcess start = shell(worker(id), "printf %s \"$PYTHONPATH\"");
    start.env = std::move(env);
    link->send(start);
    REQUIRE(site.wait([&] { return exited(*link, id); }));
    return link->out[worker(id)];
  };
  CHECK(modules(1, {{"PYTHONPATH", ""}}) == package.string());
  CHECK(modules(2, {{"PYTHONPATH", "/mine"}}) == package.string() + ":/mine");
  CHECK(modules(3, {{"PYTHONPATH", "/mine"}, {"DT_NO_PYTHON", "1"}}) == "/mine");
  CHECK(modules(4, {{"PYTHONPATH", "/mine"}, {"DTKV_LIBRARY", "/mine/libdtkv.so.0"}}) == "/mine");
}
