// dtserver and libdtkv as real processes and through their real environment; only the agent, a unix
// socket that carries messages, is played by the test.

#include <arpa/inet.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/protocol/control_messages.h"
#include "io/fd.h"
#include "io/job/checkpoint_manifest.h"
#include "kvstore/kvstore.h"
#include "test/kvstore/eventually.h"
#include "test/kvstore/proxy.h"
#include "test/support/catch.h"

using namespace dt;
using namespace dt::test;

namespace {

const std::string kHexSecret(64, 'a');

/// A temporary folder, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string name = "/tmp/dtkv-test-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// One process's connection to the agent.
class AgentEnd {
 public:
  explicit AgentEnd(io::Fd fd) : fd_(std::move(fd)) {
    const timeval limit{20, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  template <class Message>
  void say(const Message& message) {
    const std::string bytes = wire::frame(message);
    (void)::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// The next message of this type; others are passed over.
  template <class Message>
  Message hear() {
    for (;;) {
      auto frame = decoder_.next();
      if (!frame) throw std::runtime_error(frame.error().message);
      if (*frame && (*frame)->type == Message::kType) return *wire::parse<Message>((*frame)->body);
      if (*frame) continue;
      char buffer[4096];
      const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
      if (n <= 0) throw std::runtime_error("the process hung up or said nothing for 20 s");
      decoder_.feed({buffer, static_cast<std::size_t>(n)});
    }
  }

 private:
  io::Fd fd_;
  wire::FrameDecoder decoder_;
};

class FakeAgent {
 public:
  explicit FakeAgent(const std::string& path) : listener_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path.copy(at.sun_path, sizeof at.sun_path - 1);
    REQUIRE(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(listener_.get(), 8) == 0);
    const timeval limit{20, 0};
    ::setsockopt(listener_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
  AgentEnd accept() {
    io::Fd fd(::accept(listener_.get(), nullptr, nullptr));
    if (!fd) throw std::runtime_error("nobody connected to the agent within 20 s");
    return AgentEnd(std::move(fd));
  }

 private:
  io::Fd listener_;
};

class ServerProcess {
 public:
  ServerProcess(const std::string& socket, std::vector<std::string> more,
                const std::string& loop_count = "2", std::string program = DT_SERVER) {
    std::vector<std::string> env = std::move(more);  // the first of a name counts
    for (const auto& one : {"DT_AGENT_SOCKET=" + socket, std::string("DT_TOKEN=t"),
                            "DT_SECRET=" + kHexSecret, std::string("DT_SERVER_ID=0"),
                            std::string("DT_BIND=127.0.0.1"), std::string("DT_ROLE=server")})
      env.push_back(one);
    std::vector<char*> envp;
    for (auto& one : env) envp.push_back(one.data());
    envp.push_back(nullptr);
    std::string loops = "--loops";
    std::string count = loop_count;
    char* argv[] = {program.data(), count.empty() ? nullptr : loops.data(), count.data(), nullptr};
    REQUIRE(::posix_spawn(&pid_, program.c_str(), nullptr, nullptr, argv, envp.data()) == 0);
  }
  ~ServerProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  void signal(int number) { ::kill(pid_, number); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The exit status, or nothing while it runs.
  std::optional<int> ended() {
    if (status_) return status_;
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) != pid_) return {};
    pid_ = -1;
    status_ = status;
    return status_;
  }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// The threads of a process, by their names.
std::multimap<std::string, pid_t> threads_of(pid_t process) {
  std::multimap<std::string, pid_t> out;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
    std::ifstream file(task.path() / "comm");
    std::string name;
    std::getline(file, name);
    out.emplace(name, std::stoi(task.path().filename()));
  }
  return out;
}

/// Lowers this process's soft limit of descriptors for its lifetime.
class FewDescriptors {
 public:
  FewDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit few{64, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// Stops one thread of another process, as a call into a dead driver would; its other threads
/// continue. Use it from one thread of the test.
class StuckThread {
 public:
  StuckThread(pid_t process, const std::string& name) {
    REQUIRE(eventually([&] { return threads_of(process).contains(name); }));
    thread_ = threads_of(process).find(name)->second;
    REQUIRE(::ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr) == 0);
    REQUIRE(::ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr) == 0);
    REQUIRE(::waitpid(thread_, nullptr, __WALL) == thread_);
  }
  ~StuckThread() {
    ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
    has_ended();
  }
  StuckThread(const StuckThread&) = delete;
  StuckThread& operator=(const StuckThread&) = delete;
  /// Its process's end is seen only after its own.
  bool has_ended() const { return ::waitpid(thread_, nullptr, __WALL | WNOHANG) != 0; }

 private:
  pid_t thread_ = 0;
};

/// A port on which this process listens, outside the kernel's ephemeral ports.
struct TakenPort {
  io::Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t number = static_cast<std::uint16_t>(20'000 + ::getpid() % 12'000);

  TakenPort() {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(number);
    for (int i = 0; ::bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0; ++i) {
      REQUIRE(i < 100);
      at.sin_port = htons(++number);
    }
    REQUIRE(::listen(fd.get(), 1) == 0);
  }
};

/// Worker 3, alone.
void set_worker_environment(const std::string& socket) {
  for (const auto& [name, value] : std::map<std::string, std::string>{{"DT_AGENT_SOCKET", socket},
                                                                      {"DT_TOKEN", "w"},
                                                                      {"DT_SECRET", kHexSecret},
                                                                      {"DT_WORKER_ID", "3"},
                                                                      {"DT_RANK", "0"},
                                                                      {"DT_NUM_WORKERS", "1"},
                                                                      {"DT_NUM_SERVERS", "1"},
                                                                      {"DT_START_TIMEOUT", "20"}})
    ::setenv(name.c_str(), value.c_str(), 1);
}

/// Worker 3 begins an epoch.
ServerCommit commit_of(std::uint64_t generation, std::uint32_t epoch) {
  ServerCommit commit;
  commit.generation = Generation(generation);
  commit.epoch = Epoch(epoch);
  commit.contributors = {WorkerId(3)};
  return commit;
}
Release release_of(std::uint64_t generation, std::uint32_t epoch) {
  Release release;
  release.generation = Generation(generation);
  release.world_size = 1;
  release.epoch = Epoch(epoch);
  return release;
}

}  // namespace

TEST_CASE("processes: dtserver and libdtkv train over the agent's socket and the C ABI",
          "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(path, {"DT_SERVER_ID=4", "DT_SERVER_INDEX=0"});
  auto at_server = agent.accept();
  const auto who = at_server.hear<Identify>();
  CHECK(who.process == ProcessId{Role::kServer, 4});
  CHECK(who.token == "t");
  const auto ready = at_server.hear<ServerReady>();
  CHECK(ready.address == "127.0.0.1");
  CHECK(ready.device == "cpu");
  CHECK(ready.device_note.empty());  // it was not asked for another device
  ServerCommit commit;
  commit.generation = Generation(1);
  commit.contributors = {WorkerId(3)};
  at_server.say(commit);
  CHECK(at_server.hear<CommitAck>().generation == Generation(1));

  set_worker_environment(path);
  auto supervisor = std::async(std::launch::async, [&] {
    auto at_worker = agent.accept();
    if (at_worker.hear<Identify>().process.id != 3) throw std::runtime_error("not worker 3");
    if (at_worker.hear<OpenedKvStore>().type != "dist_sync") throw std::runtime_error("type");
    Servers servers;
    servers.servers.push_back({ServerId(4), ready.address, ready.port});
    at_worker.say(servers);
    for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
      const auto arrive = at_worker.hear<Arrive>();
      if (arrive.epoch != Epoch(epoch) || arrive.join) throw std::runtime_error("arrive");
      Release release;
      release.generation = Generation(1);
      release.world_size = 1;
      release.epoch = Epoch(epoch);
      at_worker.say(release);
      at_worker.say(release);  // every message may come twice
    }
    at_worker.hear<Arrive>();
    Release leave;
    leave.verdict = Verdict::kLeave;
    at_worker.say(leave);
  });
  {
    dtkv::KVStore store("dist_sync");
    CHECK(store.rank() == 0);
    CHECK(store.is_lead());
    std::vector<float> values(300'000, 1);
    store.init({{"w", values}});
    store.set_optimizer("sgd");
    std::vector<float> g(values.size(), 2);
    for (std::uint32_t epoch = 0; epoch < 2; ++epoch) {
      REQUIRE(store.epoch_boundary(epoch));
      dtkv::Push push;
      push.learning_rate = 0.25f;
      push.step = epoch;
      store.pushpull({{"w", g}}, {{"w", values}}, push);
    }
    CHECK(values == std::vector<float>(values.size(), 0));
    CHECK_FALSE(store.epoch_boundary(2));
    dtkv_array on_gpu{values.data(), values.size(), DTKV_FLOAT32, DTKV_CUDA, 0, nullptr};
    const char* key = "w";
    CHECK(dtkv_pull(store.get(), 1, &key, &on_gpu, 0, nullptr) == DTKV_INVALID);
    CHECK(std::string(dtkv_last_error()).find("CUDA") != std::string::npos);
    CHECK(eventually([&] {
      const auto traffic = at_server.hear<Traffic>();
      return traffic.alive == std::vector<WorkerId>{WorkerId(3)};
    }));
  }
  supervisor.get();
  CHECK(eventually([&] {
    return at_server.hear<Traffic>().disconnected == std::vector<WorkerId>{WorkerId(3)};
  }));
  server.signal(SIGTERM);
  REQUIRE(eventually([&] { return server.ended().has_value(); }));
  CHECK(WIFEXITED(*server.ended()));
  CHECK(WEXITSTATUS(*server.ended()) == 0);
}

TEST_CASE("processes: DT_DATA_AUTH chooses what each end requires", "[process]") {
  struct Case {
    const char* server;
    const char* worker;
    bool wants_tags;  ///< The worker's word in the handshake ...
    bool has_tags;    ///< ... and the server's.
  };
  const auto [of_server, of_worker, wants_tags, has_tags] =
      GENERATE(Case{"frames", "handshake", false, true}, Case{"handshake", "frames", true, true},
               Case{"auto", "auto", false, false});
  CAPTURE(of_server, of_worker);
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(path, {"DT_DATA_AUTH=" + std::string(of_server)}, "1");
  auto at_server = agent.accept();
  std::mutex mutex;
  std::vector<std::string> said[2];  // by whether it went to the server
  Proxy proxy(at_server.hear<ServerReady>().port,
              [&](std::size_t, bool to_server, std::string bytes) {
                std::lock_guard lock(mutex);
                said[to_server].push_back(bytes);
                return bytes;
              });
  at_server.say(commit_of(1, 0));
  at_server.hear<CommitAck>();
  set_worker_environment(path);
  ::setenv("DT_DATA_AUTH", of_worker, 1);
  auto supervisor = std::async(std::launch::async, [&] {
    auto at_worker = agent.accept();
    at_worker.hear<OpenedKvStore>();
    Servers servers;
    servers.servers.push_back({ServerId(0), "127.0.0.1", proxy.port()});
    at_worker.say(servers);
    return at_worker;
  });
  {
    const dtkv::KVStore store("dist_sync");
    supervisor.get();
  }
  ::unsetenv("DT_DATA_AUTH");
  // Each end waits for the other's message: ClientProof (server, worker, loop, wants_tags, ...),
  // and Challenge, then ServerProof (loops, has_tags, ...).
  std::lock_guard lock(mutex);
  REQUIRE(!said[true].empty());
  REQUIRE(said[false].size() >= 2);
  CHECK(said[true][0][wire::kFrameHeader + 12] == char{wants_tags});
  CHECK(said[false][1][wire::kFrameHeader + 4] == char{has_tags});
}

TEST_CASE("processes: an idle worker tells of which servers it hears, and not of a stopped one",
          "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(path, {"DT_SERVER_ID=4", "DT_SERVER_INDEX=0"});
  auto at_server = agent.accept();
  const auto ready = at_server.hear<ServerReady>();
  at_server.say(commit_of(1, 0));
  set_worker_environment(path);
  auto supervisor = std::async(std::launch::async, [&] {
    auto at_worker = agent.accept();
    Servers servers;
    servers.servers.push_back({ServerId(4), ready.address, ready.port});
    at_worker.say(servers);
    return at_worker;
  });
  const dtkv::KVStore store("dist_sync");  // without a further call: only heartbeats pass
  auto at_worker = supervisor.get();
  const auto hears = [&](const std::vector<ServerId>& servers) {
    return at_worker.hear<ServersHeard>().servers == servers;
  };
  CHECK(hears({ServerId(4)}));
  CHECK(hears({ServerId(4)}));
  server.signal(SIGSTOP);
  CHECK(eventually([&] { return hears({}); }));
  server.signal(SIGCONT);
  CHECK(eventually([&] { return hears({ServerId(4)}); }));
}

TEST_CASE("processes: a killed server is replaced, and the C ABI says where to go on",
          "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  const std::string checkpoints = folder.file("checkpoints");
  FakeAgent agent(path);
  auto server = std::make_unique<ServerProcess>(
      path, std::vector<std::string>{"DT_CHECKPOINTS=" + checkpoints});
  auto at_server = agent.accept();
  auto ready = at_server.hear<ServerReady>();
  at_server.say(commit_of(1, 0));
  set_worker_environment(path);
  std::promise<void> trained;
  auto supervisor = std::async(std::launch::async, [&] {
    auto at_worker = agent.accept();
    Servers list;
    list.servers.push_back({ServerId(0), ready.address, ready.port});
    at_worker.say(list);
    at_worker.hear<Arrive>();
    at_worker.say(release_of(1, 0));
    at_worker.hear<Arrive>();
    ServerCommit saving = commit_of(2, 1);
    saving.checkpoint = Generation(2);
    at_server.say(saving);
    const auto saved = at_server.hear<Saved>();
    io::Manifest manifest;
    manifest.epoch = Epoch(1);
    manifest.generation = Generation(2);
    manifest.files.push_back({io::checkpoint_file(0), saved.bytes, saved.header_crc});
    const std::string whole = checkpoints + "/" + io::checkpoint_name(Epoch(1));
    std::filesystem::rename(checkpoints + "/" + io::partial_name(Epoch(1), Generation(2)), whole);
    std::ofstream(whole + "/" + std::string(io::kManifestName)) << to_json(manifest);
    at_worker.say(release_of(2, 1));
    trained.get_future().wait();
    server = std::make_unique<ServerProcess>(
        path,
        std::vector<std::string>{"DT_SERVER_ID=1", "DT_SERVER_INDEX=0", "DT_RESTORE=" + whole});
    at_server = agent.accept();
    ready = at_server.hear<ServerReady>();
    at_server.say(commit_of(3, 1));
    list.servers[0] = {ServerId(1), ready.address, ready.port};
    list.since = Generation(3);
    list.epoch = Epoch(1);
    at_worker.say(list);
    const auto arrive = at_worker.hear<Arrive>();
    if (arrive.servers != Generation(3) || arrive.epoch != Epoch(1))
      throw std::runtime_error("it arrives with other servers");
    auto back = release_of(3, 1);
    back.verdict = Verdict::kRollback;
    at_worker.say(back);
  });
  dtkv::KVStore store("dist_sync");
  std::vector<float> values(300'000, 1);
  store.init({{"w", values}});
  store.set_optimizer("sgd momentum=0.9");
  std::vector<float> g(values.size(), 0.5F);
  const auto step = [&](std::uint32_t epoch) {
    dtkv::Push push;
    push.learning_rate = 0.25F;
    push.step = epoch;
    store.pushpull({{"w", g}}, {{"w", values}}, push);
    return values[0];
  };
  REQUIRE(store.epoch_boundary(0));
  const float begin = step(0);
  REQUIRE_FALSE(store.epoch_boundary(1)->rolled_back);
  const float end = step(1);
  trained.set_value();
  int code = 0;
  try {
    for (;;) step(1);
  } catch (const dtkv::Error& error) {
    code = error.code();
  }
  CHECK(code == DTKV_ROLLBACK);
  const auto view = store.epoch_boundary(7);
  REQUIRE(view);
  CHECK(view->rolled_back);
  CHECK(view->epoch == 1);
  store.pull({{"w", values}});
  CHECK(values == std::vector<float>(values.size(), begin));
  CHECK(step(1) == end);  // with its momentum
  supervisor.get();
}

TEST_CASE("processes: dtserver says in one sentence that its port is in use", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  const TakenPort taken;
  const std::string port = std::to_string(taken.number);
  ServerProcess server(path, {"DT_SERVER_PORT=" + port});
  const auto last_words = agent.accept().hear<GivingUp>();
  CHECK_FALSE(last_words.is_checkpoint);
  const auto& why = last_words.why;
  CHECK(why.find("127.0.0.1 port " + port) != std::string::npos);
  CHECK(why.find("--server-port") != std::string::npos);
  REQUIRE(eventually([&] { return server.ended().has_value(); }));
  CHECK(WEXITSTATUS(*server.ended()) == 1);
}

TEST_CASE("processes: dtserver says of which checkpoint it cannot begin with", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(
      path, {"DT_SERVER_ID=4", "DT_SERVER_INDEX=0", "DT_RESTORE=" + folder.file("epoch-000003")});
  const auto last_words = agent.accept().hear<GivingUp>();
  CHECK(last_words.is_checkpoint);
  CHECK(last_words.why.find("epoch-000003") != std::string::npos);
  REQUIRE(eventually([&] { return server.ended().has_value(); }));
  CHECK(WEXITSTATUS(*server.ended()) == 1);
}

TEST_CASE("processes: a server waits for the port of the one whose place it takes", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  auto taken = std::make_unique<TakenPort>();
  const std::uint16_t port = taken->number;
  ServerProcess server(
      path, {"DT_SERVER_ID=4", "DT_SERVER_INDEX=0", "DT_SERVER_PORT=" + std::to_string(port)});
  CHECK_FALSE(eventually([&] { return server.ended().has_value(); }, 500ms));
  taken.reset();
  CHECK(agent.accept().hear<ServerReady>().port == port);
}

TEST_CASE("processes: a server tells on which device it computes", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  const ServerProcess server(path, {"DT_SERVER_DEVICE=auto"});
  const auto ready = agent.accept().hear<ServerReady>();
  CHECK_FALSE(ready.device_note.empty());
  const bool has_none = ready.device_note.starts_with("no CUDA device");
  CHECK(ready.device == (has_none ? "cpu" : "cuda:0"));
}

TEST_CASE("processes: servers of a host take its GPUs in turn, by the host's numbers",
          "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  const auto ready = [&](std::vector<std::string> env) {
    env.emplace_back("DT_EMULATED_DEVICES=2");
    const ServerProcess server(path, std::move(env), "2", DT_EMULATED_SERVER);
    const auto said = agent.accept().hear<ServerReady>();
    return said.device + ", " + said.device_note;
  };
  const std::string name = "Emulated device, sm_90, 0 GB";
  CHECK(ready({"DT_SERVER_DEVICE=auto:0"}) == "cuda:0, " + name);
  CHECK(ready({"DT_SERVER_DEVICE=auto:1"}) == "cuda:1, " + name);
  CHECK(ready({"DT_SERVER_DEVICE=auto:2"}) == "cuda:0, " + name);
  // A scheduler's list, and one of the hosts file, which the agent makes a list of unique ids.
  CHECK(ready({"DT_SERVER_DEVICE=auto:0", "CUDA_VISIBLE_DEVICES=3,1"}) ==
        "cuda:0, GPU 3 of the host, " + name);
  CHECK(ready({"DT_SERVER_DEVICE=cuda:1", "CUDA_VISIBLE_DEVICES=3,1"}) ==
        "cuda:1, GPU 1 of the host, " + name);
  CHECK(ready({"DT_SERVER_DEVICE=auto:1", "DT_HOST_GPUS=5,2",
               "CUDA_VISIBLE_DEVICES=GPU-a,GPU-b"}) == "cuda:1, GPU 2 of the host, " + name);
}

TEST_CASE("processes: a server reports a loop that is stuck, and ends in spite of it",
          "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(path, {});
  auto at_server = agent.accept();
  at_server.hear<ServerReady>();
  const StuckThread loop(server.pid(), "kv-loop-1");
  std::vector<StuckLoop> stuck;
  CHECK(eventually([&] {
    stuck = at_server.hear<Traffic>().stuck;
    return stuck.size() == 1 &&
           stuck[0].state.find("stopped by a debugger (t)") != std::string::npos;
  }));
  REQUIRE(stuck.size() == 1);
  CHECK(stuck[0].loop == 1);
  CHECK(stuck[0].milliseconds >= 3000);
  server.signal(SIGTERM);
  CHECK(eventually([&] { return loop.has_ended() && server.ended(); }));
}

TEST_CASE("processes: loops and descriptors are for as many workers as may come", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  {
    const FewDescriptors few;
    ServerProcess server(path, {"DT_NUM_WORKERS=2", "DT_MAX_WORKERS=5000"}, "");
    auto at_server = agent.accept();
    at_server.hear<ServerReady>();
    rlimit limit{};
    REQUIRE(::prlimit(server.pid(), RLIMIT_NOFILE, nullptr, &limit) == 0);
    CHECK(limit.rlim_cur == limit.rlim_max);
    // They name themselves.
    CHECK(eventually([&] { return threads_of(server.pid()).contains("kv-loop-0"); }));
    CHECK_FALSE(threads_of(server.pid()).contains("kv-loop-1"));
  }
  const FewDescriptors few;
  set_worker_environment(path);
  ::setenv("DT_NUM_SERVERS", "0", 1);  // refused, but not before
  dtkv_store* store = nullptr;
  CHECK(dtkv_create("dist_sync", &store) == DTKV_INVALID);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(limit.rlim_cur == limit.rlim_max);
}

TEST_CASE("processes: dtserver ends when its agent is gone for the orphan time", "[process]") {
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  auto agent = std::make_unique<FakeAgent>(path);
  ServerProcess server(path, {"DT_ORPHAN_TIMEOUT=1"});
  {
    auto first = agent->accept();
    first.hear<ServerReady>();
  }
  auto second = agent->accept();  // a cut connection is restored, and repeats its messages
  second.hear<Identify>();
  second.hear<ServerReady>();
  CHECK_FALSE(server.ended());
  agent.reset();
  std::filesystem::remove(path);
  { const AgentEnd gone = std::move(second); }
  REQUIRE(eventually([&] { return server.ended().has_value(); }));
  CHECK(WIFEXITED(*server.ended()));
}

namespace {

/// This process's descriptors and what they are: "socket:[4711]", "/memfd:dtkv (deleted)".
std::map<int, std::string> descriptors() {
  std::map<int, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const auto what = std::filesystem::read_symlink(entry.path()).string();
    const bool is_listing = what.starts_with("/proc/");
    if (!is_listing) out.emplace(std::stoi(entry.path().filename()), what);
  }
  return out;
}

/// What a forked child reports.
std::string look_at_inherited(dtkv_store* store, void* memory,
                              const std::map<int, std::string>& before) {
  std::string out;
  for (const auto& [fd, what] : descriptors())
    if (!before.contains(fd)) out += what + ' ';
  const auto expect_refusal = [&out](int code) {
    const std::string why = dtkv_last_error();
    const auto sentence =
        fmt::format("this store belongs to process {}; a forked child cannot use it", ::getppid());
    if (code != DTKV_INVALID || why != sentence) out += fmt::format("{} '{}' ", code, why);
  };
  expect_refusal(dtkv_barrier(store));
  expect_refusal(dtkv_epoch_boundary(store, 1, nullptr));
  expect_refusal(dtkv_set_optimizer(store, "sgd"));
  void* more = nullptr;
  expect_refusal(dtkv_allocate(store, 1, &more));
  if (std::exchange(*static_cast<float*>(memory), 7.0F) != 1) out += "other memory ";
  dtkv_destroy(store);
  return out;
}

/// Worker 3: a round, then a child, which writes its process id and what it has inherited into
/// `report`.
void train_and_fork(int report) {
  const auto before = descriptors();
  dtkv::KVStore store("dist_sync");
  float* w = store.allocate<float>(300'000);
  const dtkv_array values{w, 300'000, DTKV_FLOAT32, DTKV_CPU, 0, nullptr};
  w[0] = 1;
  store.init({{"w", values}});
  if (!store.epoch_boundary(0)) return;
  store.pushpull({{"w", values}}, {{"w", values}}, {});
  if (::fork() == 0) {
    ::alarm(60);
    const auto text = fmt::format("{} {}\n", ::getpid(), look_at_inherited(store.get(), w, before));
    (void)io::write_all(report, text);
    for (;;) ::pause();
  }
  while (w[0] != 7) std::this_thread::yield();  // the child has written into the memory of both
  store.pushpull({{"w", values}}, {{"w", values}}, {});
  (void)io::write_all(report, w[0] == 7 ? "trains on\n" : "lost its store\n");
  for (;;) ::pause();
}

/// Up to the end of the line, or of the other side.
std::string read_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

TEST_CASE("processes: a forked child has nothing of a store, so its parent's death is seen at once",
          "[process]") {
  using Clock = std::chrono::steady_clock;
  const TempFolder folder;
  const std::string path = folder.file("agent.sock");
  FakeAgent agent(path);
  ServerProcess server(path, {"DT_TEST=1"});
  auto at_server = agent.accept();
  const auto ready = at_server.hear<ServerReady>();
  at_server.say(commit_of(1, 0));
  at_server.hear<CommitAck>();

  auto report = io::make_pipe();
  REQUIRE(report);
  const pid_t worker = ::fork();
  if (worker == 0) {
    ::alarm(60);
    set_worker_environment(path);
    train_and_fork(report->write.get());
    ::_exit(1);
  }
  report->write.reset();
  auto at_worker = agent.accept();
  at_worker.hear<OpenedKvStore>();
  Servers servers;
  servers.servers.push_back({ServerId(0), ready.address, ready.port});
  at_worker.say(servers);
  at_worker.hear<Arrive>();
  at_worker.say(release_of(1, 0));

  const std::string of_child = read_line(report->read.get());
  const pid_t child = of_child.empty() ? 0 : std::stoi(of_child);
  CHECK(of_child == std::to_string(child) + " ");
  CHECK(read_line(report->read.get()) == "trains on");

  const auto killed = Clock::now();
  REQUIRE(::kill(worker, SIGKILL) == 0);
  ::waitpid(worker, nullptr, 0);
  CHECK_THROWS(at_worker.hear<Arrive>());  // the end of the connection
  CHECK(eventually([&] {
    return at_server.hear<Traffic>().disconnected == std::vector<WorkerId>{WorkerId(3)};
  }));
  CHECK(Clock::now() - killed < std::chrono::seconds(5));
  CHECK(child > 1);
  if (child > 1) ::kill(child, SIGKILL);
}
