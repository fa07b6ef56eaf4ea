#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "io/fd.h"
#include "io/subprocess.h"
#include "test/launcher/agent/agent_fixture.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

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
  const pid_t guard = site.guard();
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
  ::kill(site.agent(), SIGKILL);
  const auto gone = [&](std::size_t i) { return !alive(all[i]); };
  CHECK(site.wait([&] { return gone(0) && gone(3) && site.guard_pid() == 0; }));
  CHECK(std::chrono::steady_clock::now() - killed_at < 1s);
  CHECK(site.wait([&] { return link->ended; }));
  CHECK(site.socket().empty());
  if (!replaced) {  // a replacement cannot find processes that changed both session and environment
    CHECK(gone(1));
    CHECK(gone(2));
  }
  for (const pid_t pid : all) ::kill(pid, SIGKILL);
}

TEST_CASE("agent: its guard cannot be ended by polite signals", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const pid_t guard = site.guard();
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
  ::kill(site.agent(), SIGKILL);
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

TEST_CASE("agent: without a supervisor for too long it stops everything and is gone", "[agent]") {
  Site site;
  site.orphan_timeout_ms = 300;
  auto link = site.attach();
  link->send(shell(worker(1), "setsid sleep 1000 & echo up; wait"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const pid_t agent = site.agent();
  const pid_t guard = site.guard();
  link->close();
  CHECK(site.wait([&] { return !alive(agent) && !alive(guard); }));
  CHECK(site.marked().empty());
  CHECK_FALSE(fs::exists(site.folder + "/dtlaunch/" + site.job));
}

TEST_CASE("agent: a supervisor that stops saying anything on an open link is gone too", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo up; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const auto beats = link->beats;
  AgentHello hello;
  hello.job = site.job;
  hello.host = "node1";
  hello.term = Term(1);
  hello.beat_ms = 20;
  hello.orphan_timeout_ms = 400;
  link->send(hello);
  REQUIRE(site.wait([&] { return link->beats > beats + 2; }));
  CHECK(link->states.size() == 1);
  CHECK(site.wait([&] { return link->ended && site.agent_pid() == 0; }));
  CHECK(site.marked().empty());
}

TEST_CASE("agent: one that nobody ever attached to ends by itself", "[agent]") {
  Site site;
  auto link = site.attach(0, "node1", {"--start", "--lonely-timeout", "1.5"});
  REQUIRE(site.wait([&] { return site.agent_pid() != 0; }));
  CHECK(site.wait([&] { return site.agent_pid() == 0 && site.guard_pid() == 0; }));
}

TEST_CASE("agent: in an allocation TERM says that the host goes away, a second one stops",
          "[agent]") {
  ::setenv("SLURM_JOB_ID", "1", 1);
  Site site;
  auto link = site.attach(1, "node1", {"--start", "--notice-grace", "30"});
  link->send(shell(worker(1), "echo up; while :; do sleep 0.02; done"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const auto notices = [](const Link& of) {
    std::vector<Notice> out;
    for (const wire::Frame& frame : of.frames)
      if (frame.type == Notice::kType) out.push_back(wire::parse<Notice>(frame.body).value());
    return out;
  };
  const pid_t agent = site.agent();
  SECTION("from its bridge") {
    int bridges = 0;
    for (const pid_t pid : processes_with(site.job)) {
      std::ifstream file(fmt::format("/proc/{}/cmdline", pid));
      const std::string words(std::istreambuf_iterator<char>(file), {});
      if (words.find("--attach") == std::string::npos) continue;
      ++bridges;
      ::kill(pid, SIGTERM);
    }
    REQUIRE(bridges == 1);
  }
  SECTION("to itself, and more than once at a time") {
    ::kill(agent, SIGTERM);
    ::kill(agent, SIGUSR1);
    ::kill(agent, SIGTERM);
  }
  REQUIRE(site.wait([&] { return notices(*link).size() == 1; }));
  const Notice first = notices(*link).front();
  CHECK_FALSE(first.is_repeated);
  CHECK(first.deadline_ms > 20'000);
  CHECK(first.deadline_ms <= 30'000);
  auto again = site.attach(2, "node1", {"--notice-grace", "30"}, link.get());
  REQUIRE(site.wait([&] { return notices(*again).size() == 1; }));
  CHECK(notices(*again).front().is_repeated);
  CHECK(notices(*again).front().deadline_ms <= first.deadline_ms);
  CHECK_FALSE(site.wait([&] { return again->ended; }, 1100ms));
  ::kill(agent, SIGTERM);
  CHECK(site.wait([&] { return again->ended && site.agent_pid() == 0; }));
  ::unsetenv("SLURM_JOB_ID");
}

TEST_CASE("agent: Shutdown and TERM stop everything and leave no file", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(
      shell(worker(1), "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"));
  link->send(
      shell(worker(2), "trap '' TERM; setsid sleep 1000 & echo up; while :; do sleep 0.02; done"));
  REQUIRE(site.wait([&] { return link->out.size() == 2; }));
  const pid_t agent = site.agent();
  const pid_t guard = site.guard();
  SECTION("Shutdown") {
    Shutdown shutdown;
    shutdown.grace_ms = 2000;  // for the shell's trap, on a busy machine
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

TEST_CASE("agent: after a take-over none is started for a lower term, also after its end",
          "[agent]") {
  Site site;
  auto first = site.attach(1, "node1", {"--start", "--term", "1"});
  REQUIRE(site.wait([&] { return first->states.size() == 1; }));
  bool is_remembered = true;
  SECTION("by an agent that ends for it") {
    auto second = site.attach(9, "node1", {"--term", "9", "--take-over"});
    REQUIRE(site.wait([&] { return second->states.size() == 1; }));
    second->send(Shutdown{0, false, true});
    REQUIRE(site.wait([&] { return second->ended && site.guard_pid() == 0; }));
  }
  SECTION("by a bridge that finds no agent") {
    first->send(Shutdown{});
    REQUIRE(site.wait([&] { return first->ended && site.guard_pid() == 0; }));
    auto second = site.attach(9, "node1", {"--term", "9", "--take-over"});
    REQUIRE(site.wait([&] { return second->ended; }));
  }
  SECTION("not by an ordinary end") {
    is_remembered = false;
    first->send(Shutdown{});
    REQUIRE(site.wait([&] { return first->ended && site.guard_pid() == 0; }));
  }
  auto late = site.attach(1, "node1", {"--start", "--term", "1"});
  REQUIRE(site.wait([&] { return late->states.size() + late->refusals.size() == 1; }));
  CHECK(late->refusals.size() == is_remembered);
  if (!is_remembered) return;
  CHECK(late->refusals[0].term == Term(9));
  CHECK(site.agent_pid() == 0);
  auto later = site.attach(10, "node1", {"--start", "--term", "10"});
  CHECK(site.wait([&] { return later->states.size() == 1; }));
}

TEST_CASE("agent: a file of a take-over that is none counts as absent", "[agent]") {
  Site site;
  auto first = site.attach();
  REQUIRE(site.wait([&] { return first->states.size() == 1; }));
  const std::string file = fs::path(site.socket()).replace_extension(".term").string();
  first->send(Shutdown{});
  REQUIRE(site.wait([&] { return first->ended && site.guard_pid() == 0; }));
  const fs::path folder = fs::path(file).parent_path();
  fs::create_directories(folder);
  fs::permissions(folder, fs::perms::owner_all);
  SECTION("garbage") { std::ofstream(file) << "9 and more\n"; }
  SECTION("torn") { std::ofstream(file) << "9"; }
  SECTION("a link") {
    std::ofstream(site.folder + "/there") << "9\n";
    fs::create_symlink(site.folder + "/there", file);
  }
  SECTION("a fifo") { REQUIRE(::mkfifo(file.c_str(), 0600) == 0); }
  auto second = site.attach();
  CHECK(site.wait([&] { return second->states.size() == 1; }));
}

TEST_CASE("agent: a lock that is no file of its user's keeps nobody waiting", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const std::string socket = link->states[0].place.socket;
  const std::string stem = site.folder + "/" + fs::path(socket).stem().string();
  const std::string file = stem + ".lock";
  io::Fd lock;
  SECTION("a fifo") { REQUIRE(::mkfifo(file.c_str(), 0600) == 0); }
  SECTION("another user's, who holds it") {
    if (::geteuid() != 0) {
      WARN("SKIPPED: only root gives files away");
      return;
    }
    lock = io::Fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    REQUIRE(::fchown(lock.get(), 65534, 65534) == 0);
    REQUIRE(::flock(lock.get(), LOCK_EX) == 0);
  }
  auto asking = site.attach(1, "node2", {"--socket", stem + ".sock"});
  REQUIRE(site.wait([&] { return asking->ended; }));
  CHECK(asking->end_reason.find("no agent of job") != std::string::npos);
}

TEST_CASE("agent: what it and its guard leave when both are killed is ended at the next attach",
          "[agent]") {
  Site site;
  auto link = site.attach();
  auto other = site.attach(1, "node2");
  const std::string f = site.folder;
  link->send(shell(worker(1), "sleep 1000 & echo $! > " + f + "/a; setsid sleep 1000 & echo $! > " +
                                  f + "/b; wait"));
  other->send(shell(worker(2), "setsid sleep 1000 & echo $! > " + f + "/c; wait"));
  const std::vector<pid_t> left = {pid_in(site, "a"), pid_in(site, "b")};
  const pid_t others = pid_in(site, "c");
  REQUIRE(site.wait([&] { return link->started.contains(worker(1)); }));
  const pid_t agent = parent_of(link->started[worker(1)][0]);
  const pid_t guard = parent_of(agent);
  ::kill(agent, SIGSTOP);  // it would make another guard
  for (const pid_t pid : {guard, agent}) ::kill(pid, SIGKILL);
  REQUIRE(site.wait([&] { return link->ended && !alive(agent) && !alive(guard); }));
  for (const pid_t pid : left) REQUIRE(alive(pid));  // no process is left to end them

  SECTION("that asks whether there is an agent") {
    auto asking = site.attach(1, "node1", {});
    REQUIRE(site.wait([&] { return asking->ended; }));
    CHECK(asking->end_reason.find("no agent of job") != std::string::npos);
  }
  SECTION("that starts an agent, before that answers") {
    auto starting = site.attach(1, "node1");
    REQUIRE(site.wait([&] { return starting->states.size() == 1; }));
  }
  for (const pid_t pid : left) CHECK_FALSE(alive(pid));
  CHECK(alive(others));
}

TEST_CASE("agent: it is found whatever folder whoever asks would have put it into", "[agent]") {
  Site site;
  auto first = site.attach();
  first->send(shell(worker(1), "echo up; exec sleep 1000"));
  REQUIRE(site.wait([&] { return first->out.size() == 1; }));
  const std::string socket = first->states[0].place.socket;
  const pid_t agent = site.agent();
  ::setenv("XDG_RUNTIME_DIR", (site.folder + "/elsewhere").c_str(), 1);
  fs::create_directory(site.folder + "/elsewhere");
  SECTION("to attach") {
    auto second = site.attach(2, "node1", {"--socket", socket});
    REQUIRE(site.wait([&] { return second->states.size() == 1; }));
    CHECK(second->states[0].incarnation == first->states[0].incarnation);
  }
  SECTION("to start one: it is there already") {
    auto second = site.attach(2, "node1", {"--start", "--socket", socket});
    REQUIRE(site.wait([&] { return second->states.size() == 1; }));
    CHECK(second->states[0].incarnation == first->states[0].incarnation);
  }
  SECTION("its files were removed: it has made them again") {
    fs::remove_all(fs::path(socket).parent_path());
    REQUIRE(site.wait([&] { return fs::exists(socket); }));
    auto second = site.attach(2, "node1", {"--socket", socket});
    REQUIRE(site.wait([&] { return second->states.size() == 1; }));
    CHECK(second->states[0].incarnation == first->states[0].incarnation);
  }
  SECTION("it lives and does not listen: nobody says that none is there") {
    ::kill(agent, SIGSTOP);  // it would make its socket again
    fs::rename(socket, socket + ".away");
    auto second = site.attach(2, "node1", {"--socket", socket});
    REQUIRE(site.wait([&] { return second->ended; }));
    CHECK(second->end_reason.find("lives, and cannot be reached") != std::string::npos);
    CHECK(alive(first->started[worker(1)][0]));
    fs::rename(socket + ".away", socket);
    ::kill(agent, SIGCONT);
  }
  CHECK(alive(agent));
  ::setenv("XDG_RUNTIME_DIR", site.folder.c_str(), 1);
}

TEST_CASE("local: bridges are reaped and out of the terminal's process group", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const pid_t agent = site.agent();
  const pid_t guard = site.guard();
  pid_t bridge = 0;
  for (const pid_t pid : processes_with(site.job))
    if (pid != agent && pid != guard) bridge = pid;
  REQUIRE(bridge != 0);
  CHECK(::getsid(bridge) == bridge);
  link->close();
  CHECK(site.wait([&] { return !fs::exists("/proc/" + std::to_string(bridge)); }));
  CHECK(alive(agent));
}

TEST_CASE("agent: where only lines pass, all it says comes whole, and its end", "[agent]") {
  Site site;
  auto link = site.attach(1, "node1", {"--start", "--lines"});
  link->send(
      shell(worker(1), "head -c 1000000 /dev/zero; tr '\\0' '\\n' </dev/zero | head -c 70000"));
  REQUIRE(site.wait([&] { return exited(*link, 1); }));
  CHECK(link->out[worker(1)] == std::string(1'000'000, '\0') + std::string(70'000, '\n'));
  link->send(Shutdown());
  CHECK(site.wait([&] { return link->ended; }));
  auto none = site.attach(1, "node1", {"--lines"});
  REQUIRE(site.wait([&] { return none->ended; }));
  REQUIRE(none->frames.size() == 1);
  CHECK(none->frames[0].type == NoAgent::kType);
}

TEST_CASE("agent: the bridge that has started it and stays ends after it, and passes TERM on",
          "[agent]") {
  Site site;
  const io::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto bridge =
      io::spawn(site.program,
                {"dtagent", "--attach", "--job", site.job, "--host", "node1", "--start", "--stay"},
                {null.get(), null.get(), null.get()}, io::ProcessGroup::kOwnSession);
  REQUIRE(bridge);
  REQUIRE(site.agent() != 0);
  // With a second thread it has the agent's connection, and takes signals.
  const fs::directory_iterator none;
  const std::string threads = fmt::format("/proc/{}/task", *bridge);
  REQUIRE(site.wait([&] { return std::distance(fs::directory_iterator(threads), none) > 1; }));
  auto link = site.attach(1, "node1", {});
  link->send(
      shell(worker(1), "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.02; done"));
  REQUIRE(site.wait([&] { return link->out.contains(worker(1)); }));
  CHECK(alive(*bridge));  // though its stdin has ended
  SECTION("Shutdown") {
    Shutdown shutdown;
    shutdown.grace_ms = 2000;
    link->send(shutdown);
  }
  SECTION("TERM") { ::kill(*bridge, SIGTERM); }
  REQUIRE(site.wait([&] { return link->ended; }));
  CHECK(link->out[worker(1)] == "up\nbye\n");
  int status = -1;
  CHECK(site.wait([&] { return ::waitpid(*bridge, &status, WNOHANG) == *bridge; }));
  CHECK(status == 0);
  CHECK(site.guard_pid() == 0);
  CHECK(site.marked().empty());
}

TEST_CASE("agent: its guard is not replaced while the agent ends", "[agent]") {
  Site site;
  auto link = site.attach();
  REQUIRE(site.wait([&] { return link->states.size() == 1; }));
  const pid_t agent = site.agent();
  const std::string socket = site.socket();
  const std::string log = socket.substr(0, socket.rfind('.')) + ".log";
  fs::create_hard_link(log,
                       site.folder + "/kept.log");  // the agent removes its own name of the file
  link->send(Shutdown());
  REQUIRE(site.wait([&] { return !alive(agent); }));
  std::ifstream kept(site.folder + "/kept.log");
  for (std::string line; std::getline(kept, line);) CHECK(line.find("guard") == std::string::npos);
}

// AddressSanitizer opens a file when an exception is thrown on the main thread, and ends the
// program if it cannot.
#ifndef DT_ASAN
TEST_CASE("agent: out of descriptors it refuses a process by name, keeps the others, and ends",
          "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo up; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const pid_t agent = site.agent();
  const pid_t guard = site.guard();
  rlimit before{};
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, nullptr, &before) == 0);
  const rlimit tight{8, before.rlim_max};  // fewer than it has open: no new one can be had
  REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &tight, nullptr) == 0);
  link->send(shell(worker(2), "echo never"));
  REQUIRE(site.wait([&] { return link->failures.contains(worker(2)); }));
  CHECK(link->failures[worker(2)][0].find("Too many open files") != std::string::npos);
  CHECK(link->failures[worker(2)][0].find("node1") != std::string::npos);
  // A guard cannot be made either; the agent keeps trying, and serving.
  ::kill(guard, SIGKILL);
  REQUIRE(site.wait([&] { return !alive(guard); }));
  const auto beats = link->beats;
  CHECK(site.wait([&] { return link->beats > beats + 30; }));
  CHECK(alive(link->started[worker(1)][0]));
  SECTION("with descriptors again it makes a guard") {
    REQUIRE(::prlimit(agent, RLIMIT_NOFILE, &before, nullptr) == 0);
    CHECK(site.wait([&] { return site.guard_pid() != 0; }));
  }
  link->send(Shutdown());
  CHECK(site.wait([&] { return !alive(agent) && !alive(link->started[worker(1)][0]); }));
}
#endif

TEST_CASE("agent: many processes need more descriptors than the soft limit, and they keep theirs",
          "[agent]") {
  Site site;
  // This process's own limit would not do: its children get the one that it began with.
  site.program = site.folder + "/with-64";
  std::ofstream(site.program) << "#!/bin/sh\nulimit -S -n 64\nexec " DT_AGENT_PROGRAM " \"$@\"\n";
  fs::permissions(site.program, fs::perms::owner_all);
  auto link = site.attach();
  for (std::uint32_t id = 1; id <= 40; ++id)
    link->send(shell(worker(id), "ulimit -S -n; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() + link->failures.size() == 40; }));
  CHECK(link->failures.empty());
  CHECK(link->out[worker(40)] == "64\n");
}

TEST_CASE("agent: started beside an earlier one's guard that clears the folder away", "[agent]") {
  Site site;
  const std::string folder = site.folder + "/dtlaunch/" + site.job;
  // The guard's last act, at the worst moment: as soon as the folder is there.
  std::atomic<bool> enough = false;
  std::thread guard([&] {
    while (!enough && ::rmdir(folder.c_str()) != 0) std::this_thread::yield();
  });
  auto link = site.attach();
  site.wait([&] { return link->states.size() == 1 || link->ended; });
  enough = true;
  guard.join();
  INFO(link->end_reason);
  CHECK(link->states.size() == 1);
}

TEST_CASE("agent: out of memory it ends, and everything with it", "[agent]") {
  Site site;
  auto link = site.attach();
  link->send(shell(worker(1), "echo up; exec sleep 1000"));
  REQUIRE(site.wait([&] { return link->out.size() == 1; }));
  const pid_t agent = site.agent();
  rlimit before{};
  REQUIRE(::prlimit(agent, RLIMIT_AS, nullptr, &before) == 0);
  const rlimit tight{1, before.rlim_max};
  REQUIRE(::prlimit(agent, RLIMIT_AS, &tight, nullptr) == 0);
  ToProcess large;
  large.process = worker(1);
  large.body = std::string(std::size_t{8} << 20, 'x');
  link->send(large);
  CHECK(site.wait([&] { return !alive(agent) && !alive(link->started[worker(1)][0]); }));
  CHECK(site.wait([&] { return link->ended; }));
}

TEST_CASE("agent: a bridge that stands aside ends well when the group that it led is killed",
          "[agent]") {
  Site site;
  int to_bridge[2];
  REQUIRE(::pipe2(to_bridge, O_CLOEXEC) == 0);
  const io::Fd input(to_bridge[1]);
  const io::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<std::string> words = {"dtagent", "--attach", "--job",   site.job,
                                          "--host",  "node1",    "--start", "--aside"};
  const auto spawned = io::spawn(site.program, words, {to_bridge[0], null.get(), null.get()},
                                 io::ProcessGroup::kOwn);
  ::close(to_bridge[0]);
  REQUIRE(spawned);
  const pid_t bridge = *spawned;
  REQUIRE(site.wait([&] { return ::getpgid(bridge) == ::getpgrp(); }));
  REQUIRE(site.guard() != 0);  // from then on the agent is the only one of its name
  const pid_t agent = site.agent();
  REQUIRE(agent != 0);
  REQUIRE(::kill(-bridge, SIGKILL) == 0);
  int status = 0;
  REQUIRE(site.wait([&] { return ::waitpid(bridge, &status, WNOHANG) == bridge; }));
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(alive(agent));
}
