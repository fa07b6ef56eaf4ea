#include "supervisor/supervisor.h"

#include <nlohmann/json.hpp>

#include "core/job/records.h"
#include "core/protocol/exit_code.h"
#include "io/fd.h"
#include "io/job/control_client.h"
#include "io/job/control_protocol.h"
#include "supervisor/files/journal_file.h"
#include "test/supervisor/supervised.h"

using namespace dt;
using namespace dt::test;
using namespace std::chrono_literals;

namespace {

/// Whoever has the file open in this process cannot write to it any more: EBADF.
void break_writes(const std::string& path) {
  const io::Fd reader(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int broken = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (fs::read_symlink(entry.path(), gone) != path) continue;
    ::dup3(reader.get(), std::stoi(entry.path().filename()), O_CLOEXEC);
    ++broken;
  }
  REQUIRE(broken == 1);
}

}  // namespace

TEST_CASE("supervisor: a stop that comes before the job exists ends it, no process is started") {
  Supervised job;
  job.start();
  if (GENERATE(false, true))
    job.supervisor->stop("too early");
  else
    job.supervisor->kill("too early");
  CHECK(job.end() == kExitInterrupted);
  for (const auto& agent : job.ends) {
    CHECK_FALSE(agent->was_told(StartProcess::kType));
    CHECK(agent->was_told(Shutdown::kType));
  }
  CHECK_FALSE(fs::exists(job.dir / "job/.dtlaunch/lock"));
}

TEST_CASE("supervisor: a kill after a stop reaches an agent whose link was down") {
  Supervised job;
  job.start();
  AgentEnd& first = job.told(0, StartProcess::kType);
  job.refuses = true;
  first.channel.close();
  const int before = job.tries;
  REQUIRE(job.until([&] { return job.tries > before; }));
  job.supervisor->stop("once");
  // The end has begun when the link is tried again.
  const int once = job.tries;
  REQUIRE(job.until([&] { return job.tries > once; }));
  job.supervisor->kill("twice");
  job.refuses = false;
  CHECK(job.told(1, Shutdown::kType).grace == 0U);
  CHECK(job.end() == kExitInterrupted);
}

TEST_CASE("supervisor: a stop leaves processes their time, whoever asks again and wherever") {
  Supervised job;
  job.start();
  AgentEnd& first = job.told(0, StartProcess::kType);
  job.refuses = true;
  first.channel.close();
  const int before = job.tries;
  REQUIRE(job.until([&] { return job.tries > before; }));
  job.supervisor->stop("once");
  job.supervisor->stop("by somebody else, too");
  job.refuses = false;
  CHECK(job.told(1, Shutdown::kType).grace == 60'000);
}

TEST_CASE(
    "supervisor: a job whose end is journalled ends, and agents of the earlier term are told") {
  Supervised job;
  auto records = begun();
  records.emplace_back(JobEnding{5, "worker 0 failed"});
  job.resume(records);
  job.start();
  CHECK(job.end() == 5);
  REQUIRE(job.ends.size() == 1);
  CHECK(job.ends[0]->was_told(Shutdown::kType));
}

TEST_CASE("supervisor: a job's end waits for a host as long as a connection may take") {
  Supervised job;
  job.slow = 5500ms;
  job.spec.ssh.connect_timeout = 20s;
  auto records = begun();
  records.emplace_back(JobEnding{5, "worker 0 failed"});
  job.resume(records);
  job.start();
  CHECK(job.end() == 5);
  REQUIRE(job.ends.size() == 1);
  CHECK(job.ends[0]->was_told(Shutdown::kType));
}

TEST_CASE("supervisor: the end of a job that is taken over waits for no machine that is gone") {
  Supervised job;
  job.spec.is_taken_over = true;
  job.spec.rules.orphan_timeout = 1h;
  job.refuses = true;
  auto records = begun();
  records.emplace_back(JobEnding{5, "worker 0 failed"});
  job.resume(records);
  job.start();
  REQUIRE(job.until([&] { return job.tries > 0; }));
  const std::string gone = R"({"op":"remove","host":"a","machine_is_gone":true})";
  CHECK(job.wait(job.ask(gone)).find("the job is ending") == std::string::npos);
  CHECK(job.end() == 5);
}

TEST_CASE("supervisor: a change that the journal cannot take is refused, and so is each after it") {
  Supervised job;
  job.start();
  AgentEnd& agent = job.told(0, StartProcess::kType);
  // The end waits for a host that is not reached.
  job.refuses = true;
  agent.channel.close();
  break_writes(job.journal_path);
  const std::string leave = R"({"op":"leave","host":"a","deadline_s":3600})";
  CHECK(job.wait(job.ask(leave)).find("the job ends: write journal") != std::string::npos);
  for (const std::string& late : {leave, std::string(R"({"op":"add","host":"b"})"),
                                  std::string(R"({"op":"grow","slots":1})")})
    CHECK(job.wait(job.ask(late)).find("the job is ending") != std::string::npos);
  CHECK(job.host_worker() == "a\n");
}

TEST_CASE("supervisor: a foreground job whose dtlaunch never comes is stopped") {
  Supervised job;
  job.options.spec.detached = false;
  job.options.owned = true;
  job.options.owner_comes = 1s;  // after its first process
  job.start();
  job.told(0, StartProcess::kType);
  CHECK(job.end() == kExitInterrupted);
  CHECK(job.ends[0]->was_told(Shutdown::kType));
}

TEST_CASE("supervisor: a foreground job whose dtlaunch has come goes on until that has gone") {
  Supervised job;
  job.options.spec.detached = false;
  job.options.owned = true;
  job.options.owner_comes = 1s;
  job.start();
  REQUIRE(job.until([&] { return fs::exists(job.socket); }));
  auto owner = job.wait(io::ControlClient::connect(job.socket));
  REQUIRE(owner);
  REQUIRE(job.wait((*owner)->ask(R"({"op":"console","owner":true})")));
  job.told(0, StartProcess::kType);
  CHECK_FALSE(job.until([&] { return job.code.has_value(); }, 1200ms));
  (*owner)->close();
  CHECK(job.end() == kExitInterrupted);
}

TEST_CASE("supervisor: two that change host_worker at once do not undo each other") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  int done = 0;
  const auto add = [&](std::string request) -> io::awaitable<void> {
    const std::string reply = co_await job.ask(std::move(request));
    CHECK(reply.find(R"("ok":true)") != std::string::npos);
    ++done;
  };
  job.group.spawn(add(R"({"op":"add","host":"b"})"));
  job.group.spawn(add(R"({"op":"add","host":"c","slots":2})"));
  REQUIRE(job.until([&] { return done == 2; }));
  CHECK(job.host_worker() == "a\nb\nc\nc\n");
}

TEST_CASE("supervisor: a request nested deeply is answered") {
  constexpr std::size_t kDepth = 200'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const std::string reply = job.wait(job.ask("{\"op\":\"events\",\"from\":" + deep + "}"));
  CHECK(reply.find("\"events\"") != std::string::npos);
}

TEST_CASE("supervisor: a fleet's report that cannot be read is refused, and the job goes on") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  for (const char* report : {R"({\"provider\":1})", R"({\"text\":null})", R"({\"asked\":\"x\"})",
                             R"({\"trouble\":[[[]]]})"}) {
    const std::string reply =
        job.wait(job.ask(fmt::format(R"({{"op":"fleet","report":"{}"}})", report)));
    CHECK(reply.find("the fleet's report cannot be read") != std::string::npos);
  }
  CHECK(job.wait(job.ask(R"({"op":"status"})")).find(R"("state")") != std::string::npos);
}

TEST_CASE("supervisor: one request does not ask for more workers than host_worker may have") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const std::string before = job.host_worker();
  const std::string reply = job.wait(job.ask(R"({"op":"add","host":"b[1-1000]","slots":10000})"));
  CHECK(reply.find("more than 65536 workers") != std::string::npos);
  CHECK(job.host_worker() == before);
}

TEST_CASE("supervisor: a host is not added to a host_worker that is not in force") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const std::string bad = GENERATE("", "# nobody\n", "a\nb slots=x\n");
  spill(job.job_dir + "/host_worker", bad);
  const std::string reply = job.wait(job.ask(R"({"op":"add","host":"b"})"));
  CHECK(reply.find(R"("ok":false)") != std::string::npos);
  CHECK(reply.find("host_worker") != std::string::npos);
  CHECK(job.host_worker() == bad);
}

TEST_CASE(
    "supervisor: a host is added to and taken from host_worker, which is else left as it is") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const auto ask = [&](const char* request) { return job.wait(job.ask(request)); };
  const auto agrees = [&](const char* request) {
    return ask(request).find(R"("ok":true)") != std::string::npos;
  };
  spill(job.job_dir + "/host_worker", "# ours\na\t# base\n\nc[1-2] slots=2\nc1");
  CHECK(agrees(R"({"op":"add","host":"b slots=2 # mine"})"));
  CHECK(job.host_worker() == "# ours\na\t# base\n\nc[1-2] slots=2\nc1\nb\nb\n");
  CHECK(agrees(R"({"op":"remove","host":"c1"})"));
  CHECK(job.host_worker() == "# ours\na\t# base\n\nc2\nc2\nb\nb\n");
  const std::string stays = job.host_worker();
  CHECK(ask(R"({"op":"remove","host":"a"})").find("initial launch") != std::string::npos);
  CHECK(ask(R"({"op":"remove","host":"c1"})").find("c1 is not in host_worker") !=
        std::string::npos);
  CHECK(job.host_worker() == stays);
  CHECK(ask(R"({"op":"add","host":"# c1"})").find("names no host") != std::string::npos);
  CHECK(job.host_worker() == stays);
  // A base host's further workers go, its first ones stay.
  CHECK(agrees(R"({"op":"add","host":"a"})"));
  CHECK(agrees(R"({"op":"remove","host":"a"})"));
  CHECK(job.host_worker() == "# ours\n\nc2\nc2\nb\nb\na\n");
}

TEST_CASE("supervisor: whoever adds a host to a job without a kvstore hears that nothing joins") {
  constexpr const char* kNothingJoins = " s): until one does, nothing joins";
  Supervised job;
  job.start();
  AgentEnd& agent = job.told(0, StartProcess::kType);
  CHECK(job.wait(job.ask(R"({"op":"add","host":"b"})")).find(kNothingJoins) != std::string::npos);
  REQUIRE(job.until([&] {
    return job.wait(job.ask(R"({"op":"status"})")).find(R"("host":"b")") != std::string::npos;
  }));
  CHECK(job.wait(job.ask(R"({"op":"status"})")).find("until one does, nothing joins") !=
        std::string::npos);
  open_store(job, agent);
  CHECK(job.wait(job.ask(R"({"op":"add","host":"c"})")) == R"({"ok":true})");
}

TEST_CASE(
    "supervisor: a dtctl of another control version reads both versions, and changes nothing") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  const std::string before = job.host_worker();
  for (const char* request :
       {R"({"op":"add","host":"b","control":99})", R"({"op":"stop","control":99})"}) {
    const std::string reply = job.wait(job.ask(request));
    CHECK(reply.find("version 99") != std::string::npos);
    CHECK(reply.find(fmt::format("supervisor version {}", io::kControlVersion)) !=
          std::string::npos);
  }
  CHECK(job.host_worker() == before);
  CHECK_FALSE(job.code);
  CHECK(job.wait(job.ask(R"({"op":"status","control":99})")).find(R"("job":"j")") !=
        std::string::npos);
}

TEST_CASE("supervisor: a job that is not elastic leaves nothing in its folder but .dtlaunch") {
  Supervised job;
  job.spec.elastic = false;
  job.start();
  job.told(0, StartProcess::kType);
  const std::string refused = job.wait(job.ask(R"({"op":"add","host":"b"})"));
  CHECK(refused.find("it has no host_worker") != std::string::npos);
  job.supervisor->kill("the test is over");
  CHECK(job.end() == kExitInterrupted);
  for (const auto& entry : fs::directory_iterator(job.job_dir))
    CHECK(entry.path().filename() == ".dtlaunch");
  CHECK(slurp(job.job_dir + "/.dtlaunch/j/events.jsonl").find("worker_launched") !=
        std::string::npos);
}

TEST_CASE("supervisor: an elastic job's story is seen in its folder, by a link that can be moved") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  job.supervisor->kill("the test is over");
  CHECK(job.end() == kExitInterrupted);
  CHECK(fs::read_symlink(job.job_dir + "/events.jsonl") == ".dtlaunch/j/events.jsonl");
  const std::string events = slurp(job.job_dir + "/events.jsonl");
  CHECK(events.find("worker_launched") != std::string::npos);
  CHECK(events.find("\"code\":130,") != std::string::npos);  // not 130.0
  CHECK(slurp(job.job_dir + "/host_worker") == "a\n");
}

TEST_CASE("supervisor: a quiet job's console has warnings and no more") {
  Supervised job;
  job.spec.quiet = true;
  job.start();
  REQUIRE(job.until([&] { return fs::exists(job.socket); }));
  auto client = job.wait(io::ControlClient::connect(job.socket));
  REQUIRE(client);
  REQUIRE(job.wait((*client)->ask(R"({"op":"console","owner":true})")));
  job.told(0, StartProcess::kType);
  job.supervisor->kill("enough");
  std::string seen;
  const auto follow = [&]() -> io::awaitable<int> {
    for (;;) {
      auto frame = co_await (*client)->receive();
      if (!frame || frame->type == io::JobEnded::kType) co_return 0;
      if (frame->type == io::Console::kType) seen += wire::parse<io::Console>(frame->body)->bytes;
    }
  };
  job.wait(follow());
  CHECK(seen.find(" INFO ") == std::string::npos);
  CHECK(seen.find(" WARNING the job was stopped: enough") != std::string::npos);
}

TEST_CASE("supervisor: a job's end says who asked for it, on one line") {
  Supervised job;
  job.start();
  job.told(0, StartProcess::kType);
  job.wait(job.ask(R"({"op":"stop","force":true,"why":"dtctl stop by root on pts/3\u001b[2J\n"})"));
  CHECK(job.end() == kExitInterrupted);
  CHECK(slurp(job.job_dir + "/.dtlaunch/current.json").find("dtctl stop by root on pts/3\\") !=
        std::string::npos);
}

TEST_CASE(
    "supervisor: a base host that lacks the folder of the processes is named, nothing starts") {
  Supervised job;
  job.spec.launcher = StarterKind::kSsh;
  job.spec.rules.start_timeout = 5s;
  job.start();
  AgentEnd& agent = job.told(0, CheckFolder::kType);
  agent.channel.send(FolderChecked{"/", ENOENT});
  CHECK(job.end() == kExitUnreachable);
  CHECK_FALSE(agent.was_told(StartProcess::kType));
  CHECK(slurp(job.job_dir + "/.dtlaunch/current.json")
            .find("a: / is not there (is the volume mounted? ") != std::string::npos);
}

TEST_CASE("supervisor: processes start where the folder is, asked for once of an agent") {
  Supervised job;
  job.spec.launcher = StarterKind::kSsh;
  job.start();
  AgentEnd& first = job.told(0, CheckFolder::kType);
  CHECK_FALSE(first.was_told(StartProcess::kType));
  first.channel.send(FolderChecked{"/", 0});
  job.told(0, StartProcess::kType);
  first.channel.close();
  REQUIRE(
      job.until([&] { return job.ends.size() > 1 && job.ends[1]->was_told(AgentHello::kType); }));
  REQUIRE(job.until([&] {
    return job.wait(job.ask(R"({"op":"status"})")).find(R"("link":"up")") != std::string::npos;
  }));
  CHECK_FALSE(job.ends[1]->was_told(CheckFolder::kType));
}

TEST_CASE("supervisor: where hosts need no common folder none is asked for") {
  Supervised job;
  job.spec.launcher = StarterKind::kSsh;
  job.spec.no_shared_folder = true;
  job.start();
  CHECK_FALSE(job.told(0, StartProcess::kType).was_told(CheckFolder::kType));
}

TEST_CASE("supervisor: a worker that has to wait with its output is told, once, while it does") {
  Supervised job;
  job.spec.workers = job.spec.known_hosts = {Host{"", "a", 0}};
  job.start();
  AgentEnd& agent = job.told(0, StartProcess::kType);
  const ProcessId worker{Role::kWorker, 0};
  agent.channel.send(ProcessStarted{worker, 1});
  const auto shows = [&](std::string_view text) {
    return job.wait(job.ask(R"({"op":"status"})")).find(text) != std::string::npos;
  };
  const auto told = [&] {
    std::string events = job.wait(job.ask(R"({"op":"events","from":0})"));
    int count = 0;
    for (std::size_t at = 0; (at = events.find("output_waits", at)) != std::string::npos; ++at)
      ++count;
    return count;
  };
  for (int i = 0; i < 2; ++i) agent.channel.send(Usage{{{worker, 1 << 20}}, {worker}});
  REQUIRE(job.until([&] { return shows("writes more output than the shared volume takes"); }));
  CHECK(told() == 1);
  agent.channel.send(Usage{{{worker, 1 << 20}}, {}});
  REQUIRE(job.until([&] { return !shows("writes more output than the shared volume takes"); }));
  // Its exit comes before its output does.
  Output output{worker, false, "the end"};
  agent.channel.send(ProcessExited{worker, {5, 0}, true});
  agent.channel.send(output);
  agent.channel.send(OutputEnded{worker});
  CHECK(job.end() == 5);
  CHECK(slurp(job.job_dir + "/.dtlaunch/j/logs/worker-0.log") == "the end");
}

TEST_CASE("supervisor: a line tells now and then how the job goes on") {
  Supervised job;
  job.options.heartbeat = 50ms;
  job.start();
  REQUIRE(job.until([&] { return fs::exists(job.socket); }));
  auto client = job.wait(io::ControlClient::connect(job.socket));
  REQUIRE(client);
  REQUIRE(job.wait((*client)->ask(R"({"op":"console","owner":true})")));
  std::string seen;
  const auto hears = [&](const std::string& what) -> io::awaitable<bool> {
    while (seen.find(what) == std::string::npos) {
      auto frame = co_await (*client)->receive();
      if (!frame || frame->type == io::JobEnded::kType) co_return false;
      if (frame->type == io::Console::kType) seen += wire::parse<io::Console>(frame->body)->bytes;
    }
    co_return true;
  };
  AgentEnd& agent = job.told(0, StartProcess::kType);
  CHECK(job.wait(hears(" INFO 1 worker, up ")));
  CHECK(job.wait(hears(" s, no kvstore is open\n")));
  const auto arrive = [&](std::uint32_t epoch) {
    FromProcess arrived;
    arrived.process = {Role::kWorker, 0};
    arrived.type = Arrive::kType;
    arrived.body = wire::body_of(Arrive{Epoch(epoch), epoch == 0, Generation()});
    agent.channel.send(arrived);
  };
  arrive(0);
  CHECK(job.wait(hears(" INFO epoch 0, 1 worker, last boundary ")));
  arrive(1);
  CHECK(job.wait(hears(" INFO epoch 1, 1 worker, ")));
  CHECK(job.wait(hears(" s/epoch, last boundary ")));
  const std::string status = job.wait(job.ask(R"({"op":"status"})"));
  CHECK(status.find(R"("boundary_age_s":)") != std::string::npos);
}

TEST_CASE("supervisor: a job that cannot begin gives its folder back") {
  Supervised job;
  job.options.spec.socket = job.dir / std::string(200, 'x');  // too long for a socket
  job.start();
  CHECK(job.end() == kExitFailure);
  CHECK(fs::exists(job.dir / "job/.dtlaunch"));
  CHECK_FALSE(fs::exists(job.dir / "job/.dtlaunch/lock"));
}

TEST_CASE("supervisor: restarts of an earlier term count, too") {
  const Host b{"", "b", 0};
  Committed joins{Generation(2), true, Epoch(1), {WorkerId(0), WorkerId(1)}, {}, {}, {}};
  joins.contributors = joins.members;
  std::vector<Record> records = begun();
  records.insert(records.end(), {FileTaken{Edit(1), {{Host{"", "a", 0}, 1}, {b, 1}}},
                                 WorkerAllotted{WorkerId(1), b, Edit(1)}, joins,
                                 WorkerGone{WorkerId(1), {0, 9}, "", {}}});
  Supervised job;
  job.refuses = true;  // no agent tells of another death
  job.resume(records);
  job.start();
  REQUIRE(job.until([&] { return job.tries > 0; }));
  const auto status = nlohmann::json::parse(job.wait(job.ask(R"({"op":"status"})")));
  CHECK(status["pulse"]["restarts"] == 1);
}

TEST_CASE("supervisor: a change that an earlier term has not told is told once") {
  const Host a{"", "a", 0};
  const Host b{"", "b", 0};
  const LogLine added{0, true, b, 1'763'664'000'123'456'789};
  const LogLine removed{1, false, b, 1'763'664'000'987'654'321};
  Committed joins{Generation(2), true, Epoch(1), {WorkerId(0), WorkerId(1)}, {}, {}, {added}};
  joins.contributors = joins.members;
  std::vector<Record> records = begun();
  records.insert(records.end(),
                 {FileTaken{Edit(1), {{a, 1}, {b, 1}}}, WorkerAllotted{WorkerId(1), b, Edit(1)},
                  joins, WorkerGone{WorkerId(1), {0, 9}, "", {removed}}});
  Supervised job;
  const std::string events = job.dir / "job/.dtlaunch/j/events.jsonl";
  // Half of the last line: the helper was killed, too.
  const std::string other = R"({"n":0,"event":"committed"})"
                            "\n";
  const std::string first = R"({"n":1,"event":"worker_added","seq":0})"
                            "\n";
  const std::string half = R"({"n":2,"event":"worker_re)";
  const std::string there =
      GENERATE_COPY(std::string(), other, other + half, other + first, other + first + half);
  fs::create_directories(job.dir / "job/.dtlaunch/j");
  spill(events, there);
  job.resume(records);
  job.start();
  job.told(0, AgentHello::kType);
  job.supervisor->kill("enough");
  job.end();

  std::vector<std::string> told;
  std::istringstream lines(slurp(events));
  for (std::string line; std::getline(lines, line); told.push_back(line))
    CHECK(line.find(fmt::format("\"n\":{}", told.size())) != std::string::npos);
  const auto tell = [&](const char* what, std::uint64_t seq) {
    return std::count_if(told.begin(), told.end(), [&](const std::string& line) {
      return line.find(what) != std::string::npos &&
             line.find(fmt::format("\"seq\":{}", seq)) != std::string::npos;
    });
  };
  CHECK(tell("worker_added", 0) == 1);
  CHECK(tell("worker_removed", 1) == 1);
  CHECK(slurp(events).starts_with(there.substr(0, there.rfind('\n') + 1)));
  const std::string when = fmt::format("\"time_ns\":{}", removed.wall_ns);
  CHECK(slurp(events).find(when) != std::string::npos);
}

TEST_CASE("supervisor: only a folder that has a job is said to have one") {
  Supervised job;
  fs::create_directory(job.spec.state_dir);
  fs::permissions(job.spec.state_dir, fs::perms(0755));  // others may read it: refused
  job.start();
  CHECK(job.end() == kExitFailure);
}

TEST_CASE("supervisor: a socket's path that is too long is an error with the limit") {
  Supervised job;
  job.options.spec.socket = job.dir / std::string(120, 'x');
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  job.options.ready_fd = ends[1];
  job.start();
  CHECK(job.end() == kExitFailure);
  char said[1000] = {};
  REQUIRE(::read(ends[0], said, sizeof said - 1) > 0);
  CHECK(std::string(said).find("107 characters at most") != std::string::npos);
  ::close(ends[0]);
}

TEST_CASE("supervisor: values of --env do not lie on the volume") {
  Supervised job;
  job.options.spec.env = {{"WANDB_API_KEY", "hush-hush"}};
  job.start();
  job.told(0, StartProcess::kType);
  const auto spec = io::spec_from_json(slurp(job.job_dir + "/.dtlaunch/j/spec.json"));
  REQUIRE(spec);
  CHECK(spec->is_env_elsewhere);
  CHECK(spec->env == std::vector<std::pair<std::string, std::string>>{{"WANDB_API_KEY", ""}});
}

TEST_CASE("supervisor: a long journal is cut, and its copy follows, whatever host_worker_log has") {
  Supervised job;
  const LogLine added{0, true, Host{"", "b", 0}, 1'763'664'000'123'456'789};
  std::vector<Record> before = begun();
  before.insert(before.begin(), Snapshot{1, {added}});
  job.resume(before);
  const std::string log = job.job_dir + "/host_worker_log";
  spill(log, "mine\n");
  // Too many bytes, or too many records. In one write: each append waits for the disk.
  const std::uint32_t epochs = GENERATE(2'000U, 10'000U);
  std::string bytes = slurp(job.journal_path);
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch)
    bytes += journal::append_bytes(EpochBegan{Epoch(epoch)});
  spill(job.journal_path, bytes);
  if (epochs == 2'000) job.options.journal_limit = 20'000;
  const std::string copy = io::journal_copy_file(job.spec);
  job.start();
  REQUIRE(job.until([&] { return slurp(job.journal_path).starts_with(journal::kCutHeader); }));
  const auto replay = journal::replay(slurp(job.journal_path));
  REQUIRE_FALSE(replay.error);
  CHECK(replay.records.size() < 20);
  CHECK(replay.records.front().type == Snapshot::kType);
  REQUIRE(job.until([&] { return slurp(copy) == slurp(job.journal_path); }));
  CHECK(job.wait(job.ask(R"({"op":"status"})")).find(fmt::format(R"("epoch":{},)", epochs - 1)) !=
        std::string::npos);
  REQUIRE(job.until([&] {
    return slurp(job.job_dir + "/events.jsonl").find("journal_cut") != std::string::npos;
  }));
  const std::string foreign = job.job_dir + "/.dtlaunch/j/host_worker_log.foreign";
  REQUIRE(job.until([&] { return slurp(log).starts_with(format_change(added)); }));
  CHECK(slurp(foreign) == "mine\n");
  REQUIRE(job.until([&] {
    return slurp(job.job_dir + "/events.jsonl").find("log_changed") != std::string::npos;
  }));
  CHECK(job.wait(job.ask(R"({"op":"status"})")).find(foreign) != std::string::npos);
}
