#include "launcher/backend/command_backend.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "io/task_group.h"
#include "launcher/backend/lines_stream.h"
#include "launcher/backend/sync.h"
#include "test/support/catch.h"
#include "test/support/sshd.h"

namespace dt::test {
namespace {

using namespace std::chrono_literals;
using launcher::CommandBackend;
using launcher::CommandLimits;
using launcher::CommandResult;

class KeptLog final : public io::Log {
 public:
  void line(io::Level, std::string_view text) override { all += fmt::format("{}\n", text); }
  std::string all;
};

Starter rsh(std::string text) {
  Starter starter;
  starter.kind = StarterKind::kCommand;
  starter.rsh = std::move(text);
  return starter;
}

/// A loop and a backend on it.
struct Client {
  explicit Client(Starter starter, CommandLimits limits = {})
      : backend(context.get_executor(), std::move(starter), {}, log, limits) {}

  template <class T>
  T wait(io::awaitable<T> work) {
    std::optional<T> value;
    io::TaskGroup group(context.get_executor());
    auto keep = [](io::awaitable<T> w, std::optional<T>& into) -> io::awaitable<void> {
      T result = co_await std::move(w);
      into.emplace(std::move(result));
    };
    group.spawn(keep(std::move(work), value));
    turn([&] { return group.idle(); });
    REQUIRE(value);
    return std::move(*value);
  }
  void turn(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + 50s;
    while (!done() && std::chrono::steady_clock::now() < end) {
      context.restart();
      context.run_one_for(20ms);
    }
  }
  Result<CommandResult> run(std::string script, std::string input = {}) {
    return wait(launcher::run_command(*backend.exec(host), host, std::move(script), input, 30s));
  }
  std::string refusal() {
    const auto result = run("true");
    return result ? "no error" : result.error().message;
  }

  io::asio::io_context context{1};
  KeptLog log;
  Host host{"", "h1", 0};
  CommandBackend backend;
};

std::string bytes_of_all_values(std::size_t size) {
  std::string out;
  for (std::size_t i = 0; i < size; ++i) out.push_back(static_cast<char>(i * 7 + i / 256));
  return out;
}

/// Puts a program of that name in front of all others in PATH, for its lifetime.
class InPath {
 public:
  InPath(const std::string& name, const std::string& script) : before_(std::getenv("PATH")) {
    write_file(folder_ / name, script, 0700);
    ::setenv("PATH", (folder_.path() + ":" + before_).c_str(), 1);
  }
  ~InPath() { ::setenv("PATH", before_.c_str(), 1); }
  InPath(const InPath&) = delete;
  InPath& operator=(const InPath&) = delete;
  [[nodiscard]] std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  TempDir folder_;
  std::string before_;
};

/// As srun passes output on: whole lines only.
constexpr const char* kHoldsBack = R"(#!/usr/bin/env python3
import os, subprocess, sys
with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE) as command:
    kept = b""
    while piece := os.read(command.stdout.fileno(), 65536):
        kept += piece
        end = kept.rfind(b"\n") + 1
        sys.stdout.buffer.write(kept[:end])
        sys.stdout.buffer.flush()
        kept = kept[end:]
    sys.stdout.buffer.write(kept)
sys.exit(command.returncode)
)";

TEST_CASE("command: a script's output, last words and exit code, and its input is its own",
          "[command]") {
  Client client(rsh("sh -c 'exec {command}' {host}"));
  const auto result = client.run("head -n 1; cat >/dev/null; echo oops >&2; exit 7", "one\ntwo\n");
  REQUIRE(result);
  CHECK(result->out == "one\n");
  CHECK(result->err == "oops");
  CHECK(result->exit_code == 7);
  const auto killed = client.run("kill -9 $$");
  REQUIRE(killed);
  CHECK(killed->exit_code == 137);
}

TEST_CASE("command: what a script contains arrives as it was written", "[command]") {
  // Joined words for a shell in between, as ssh does, and words that reach execve() as they are.
  for (const char* words : {"sh -c {command} {host}", "env X={host} {command}"}) {
    Client client(rsh(words));
    const std::string text = "'\"$ \\;*\n\t!#~&|<>(){}[]?`\x01\xe4";
    const auto result = client.run("printf %s ''\\''\"$ \\;*\n'; cat", text);
    REQUIRE(result);
    CHECK(result->out == "'\"$ \\;*\n" + text);
  }
}

TEST_CASE("command: a broken script is a result", "[command]") {
  Client client(rsh("env X={host} {command}"));
  const auto result = client.run("if");
  REQUIRE(result);
  CHECK(result->exit_code == 2);
}

TEST_CASE("command: bytes of any value and number go through, framed where lines are held back",
          "[command]") {
  const TempDir folder;
  write_file(folder / "holds_back", kHoldsBack, 0700);
  for (const bool holds_back : {false, true}) {
    Client client(
        rsh(holds_back ? (folder / "holds_back") + " {host} {command}" : "env X={host} {command}"));
    auto started = client.wait(
        launcher::start_command(*client.backend.exec(client.host), client.host, "exec cat"));
    REQUIRE(started);
    std::unique_ptr<io::ByteStream> stream = std::move(*started);
    if (holds_back) stream = launcher::lines_stream(std::move(stream));
    for (const std::string& sent : {std::string("abc"), std::string(64 << 10, 'x'),
                                    std::string(64 << 10, '\n'), bytes_of_all_values(1 << 20)}) {
      std::string got;
      auto read = [](io::ByteStream& from, std::string& into,
                     std::size_t size) -> io::awaitable<void> {
        std::string piece(64 << 10, '\0');
        while (into.size() < size) {
          auto n = co_await from.read(piece);
          if (!n || *n == 0) co_return;
          into.append(piece, 0, *n);
        }
      };
      auto write = [](io::ByteStream& to, const std::string& bytes) -> io::awaitable<void> {
        co_await to.write(bytes);
      };
      io::TaskGroup group(client.context.get_executor());
      group.spawn(read(*stream, got, sent.size()));
      group.spawn(write(*stream, sent));
      client.turn([&] { return group.idle(); });
      group.cancel();
      client.turn([&] { return group.idle(); });
      CHECK(got == sent);
    }
  }
}

TEST_CASE("command: why it could not be started", "[command]") {
  CHECK(Client(rsh("no-such-program {host} {command}")).refusal() ==
        "h1: no-such-program is not installed here, or not in PATH");
  CHECK(Client(rsh("sh -c 'echo no such pod >&2; exit 9' {host} {command}")).refusal() ==
        "h1: sh ended with exit code 9: no such pod");
  Starter mpi;
  mpi.kind = StarterKind::kMpi;
  const InPath hydra("mpirun", "#!/bin/sh\necho 'HYDRA build details:'\n");
  CHECK_THAT(Client(mpi).refusal(), Catch::Matchers::StartsWith("h1: mpirun here is MPICH's"));
}

TEST_CASE("command: one that never starts is given up by the deadline, and killed", "[command]") {
  const TempDir folder;
  CommandLimits limits;
  limits.start = 300ms;
  Client client(rsh("sh -c 'echo $$ >" + (folder / "pid") +
                    "; trap \"\" TERM HUP; echo queued >&2; sleep 1000; true' {host} {command}"),
                limits);
  CHECK(client.refusal() == "h1: sh: no sign of the command's start: nothing within 0.3 s: queued");
  const pid_t pid = std::stoi(read_file(folder / "pid"));
  client.turn([&] { return ::kill(pid, 0) != 0; });
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("command: no more than the window are started at once", "[command]") {
  const TempDir folder;
  CommandLimits limits;
  limits.window = 2;
  Client client(rsh("sh -c 'echo + >>" + (folder / "log") + "; sleep 0.2; echo - >>" +
                    (folder / "log") + "; exec {command}' {host}"),
                limits);
  io::TaskGroup group(client.context.get_executor());
  auto run = [](Client& with) -> io::awaitable<void> {
    co_await launcher::run_command(*with.backend.exec(with.host), with.host, "true", "", 30s);
  };
  for (int i = 0; i < 6; ++i) group.spawn(run(client));
  client.turn([&] { return group.idle(); });
  int now = 0;
  int most = 0;
  for (const char c : read_file(folder / "log")) {
    now += c == '+' ? 1 : c == '-' ? -1 : 0;
    most = std::max(most, now);
  }
  CHECK(now == 0);
  CHECK(most == 2);
}

TEST_CASE("command: srun that waits for a busy node is news, with the remedy", "[command]") {
  const InPath srun("srun",
                    "#!/bin/sh\necho 'srun: Job 1 step creation temporarily disabled, retrying "
                    "(Requested nodes are busy)' >&2\nsleep 1000\n");
  Starter slurm;
  slurm.kind = StarterKind::kSlurm;
  CommandLimits limits;
  limits.patience = 200ms;
  limits.start = 1s;
  Client client(slurm, limits);
  io::TaskGroup group(client.context.get_executor());
  auto run = [](Client& with, std::string& error) -> io::awaitable<void> {
    auto result =
        co_await launcher::run_command(*with.backend.exec(with.host), with.host, "true", "", 30s);
    if (!result) error = result.error().message;
  };
  std::string error;
  group.spawn(run(client, error));
  client.turn([&] { return !client.backend.doing(client.host).empty() || group.idle(); });
  CHECK_THAT(client.backend.doing(client.host), Catch::Matchers::Contains("nodes are busy"));
  client.turn([&] { return group.idle(); });
  CHECK_THAT(client.log.all, Catch::Matchers::Contains("--overlap"));
  CHECK_THAT(error,
             Catch::Matchers::Contains("nodes are busy") && Catch::Matchers::Contains("--overlap"));
  CHECK(client.backend.doing(client.host).empty());
}

TEST_CASE("command: one squeue tells of the nodes of all that come meanwhile", "[command]") {
  const InPath srun("srun",
                    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do case $1 in --jobid=*) export "
                    "JOB=\"${1#*=}\" ;; esac; shift; done; shift; exec \"$@\"\n");
  std::string script =
      "#!/bin/sh\necho >>\"$0.calls\"; sleep 0.2\n";  // as slow as a busy slurmctld
  for (int n = 1; n <= 30; ++n)
    script += fmt::format("echo '{}|RUNNING|n{}|None|dtlaunch:j joined'\n", 100 + n, n);
  const InPath squeue("squeue", script);
  const auto calls = [&squeue] { return read_file(squeue / "squeue.calls").size(); };
  Starter slurm;
  slurm.kind = StarterKind::kSlurm;
  slurm.holders_of = "j";
  CommandLimits limits;
  limits.queue_holds = 2s;
  Client client(slurm, limits);
  io::TaskGroup group(client.context.get_executor());
  std::vector<std::string> jobs;
  auto run = [&jobs](Client& with, Host host) -> io::awaitable<void> {
    auto result =
        co_await launcher::run_command(*with.backend.exec(host), host, "echo $JOB", "", 30s);
    jobs.push_back(result ? result->out : result.error().message);
  };
  for (int n = 1; n <= 30; ++n) group.spawn(run(client, {"", fmt::format("n{}", n), 0}));
  client.turn([&] { return group.idle(); });
  std::ranges::sort(jobs);
  REQUIRE(jobs.size() == 30);
  CHECK(jobs.front() == "101\n");
  CHECK(jobs.back() == "130\n");
  CHECK(calls() == 1);
  // Whoever is not there may be newer than the answer.
  for (int n = 1; n <= 5; ++n) group.spawn(run(client, {"", "m1", 0}));
  client.turn([&] { return group.idle(); });
  CHECK(calls() <= 3);
  CHECK_THAT(jobs.back(),
             Catch::Matchers::Contains("no Slurm job of this dtlaunch job runs there"));
  client.turn([end = std::chrono::steady_clock::now() + limits.queue_holds] {
    return std::chrono::steady_clock::now() > end;
  });
  const auto before = calls();
  group.spawn(run(client, {"", "n1", 0}));
  client.turn([&] { return group.idle(); });
  CHECK(calls() == before + 1);
}

TEST_CASE("command: options in the environment, meant for others, do not reach it", "[command]") {
  const InPath srun("srun",
                    "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift; exec \"$@\"\n");
  Starter slurm;
  slurm.kind = StarterKind::kSlurm;
  Client client(slurm);
  ::setenv("SLURM_CPU_BIND_TYPE", "verbose", 1);
  ::setenv("SSH_CONNECTION", "10.0.0.1 1 10.0.0.2 22", 1);
  ::setenv("SLURM_JOB_ID", "41", 1);
  const auto result =
      client.run("echo ${SLURM_CPU_BIND_TYPE-none} ${SSH_CONNECTION-none} $SLURM_JOB_ID");
  for (const char* name : {"SLURM_CPU_BIND_TYPE", "SSH_CONNECTION", "SLURM_JOB_ID"})
    ::unsetenv(name);
  REQUIRE(result);
  CHECK(result->out == "none none 41\n");
}

/// Brings `source` to `target` on the host; the error's message, or nothing.
std::string sync(Client& client, const std::string& source, const std::string& target) {
  const auto window = std::make_shared<io::Semaphore>(client.context.get_executor(), 1);
  const auto done =
      client.wait(launcher::sync_folder(client.backend, window, client.host, source, target));
  return done ? "" : done.error().message;
}

/// srun, which passes output on as kHoldsBack does. Whatever it has forked may be killed,
/// so the command is no child of it.
constexpr const char* kSrun = R"(#!/usr/bin/env python3
import os, sys
out, command = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        os.close(command)
        kept = b""
        while piece := os.read(out, 65536):
            kept += piece
            end = kept.rfind(b"\n") + 1
            os.write(1, kept[:end])
            kept = kept[end:]
        os.write(1, kept)
    os._exit(0)
os.wait()
status, ended = os.pipe()
gate, waits = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.close(waits)
        os.read(gate, 1)
        if os.fork() == 0:
            os.dup2(command, 1)
            words = sys.argv[sys.argv.index("--") + 1:]
            os.execvp(words[0], words)
        os.close(command)
        os.write(ended, bytes([os.waitstatus_to_exitcode(os.wait()[1]) & 255]))
    os._exit(0)
os.wait()
for one in (waits, command, ended):
    os.close(one)
os._exit((os.read(status, 1) or b"\1")[0])
)";

TEST_CASE("command: a working folder arrives on a host as it is, without .dtlaunch", "[command]") {
  const TempDir folder;
  const std::string source = folder / "work";
  std::filesystem::create_directories(source + "/it's $HOME * \n\xff/empty");
  std::filesystem::create_directories(source + "/.dtlaunch/old");
  run_tool({"sh", "-c",
            "cd \"$1\" && head -c 70M /dev/urandom >-rf && : >'a  b' && ln -s -- -rf link", "sh",
            source});
  const InPath srun("srun", kSrun);
  Starter slurm;
  slurm.kind = StarterKind::kSlurm;
  for (const Starter& starter : {slurm, rsh("sh -c 'exec {command}' {host}")}) {
    Client client(starter);
    const std::string target = fmt::format("{}/it's {}", folder.path(), to_text(starter.kind));
    CHECK(sync(client, source + "/", target) == "");
    // As long as it runs, the folder gets what has changed, and nothing goes.
    write_file(target + "/keep", "mine");
    write_file(source + "/a  b", "changed");
    CHECK(sync(client, source, target) == "");
    CHECK(read_file(target + "/keep") == "mine");
    std::filesystem::remove(target + "/keep");
    CHECK(run_tool({"diff", "-r", "--no-dereference", "-x", ".dtlaunch", source, target}) == "");
    CHECK_FALSE(std::filesystem::exists(target + "/.dtlaunch"));
    write_file(source + "/a  b", "");
  }
}

TEST_CASE("command: why a working folder did not arrive, with the host", "[command]") {
  using Catch::Matchers::Contains;
  using Catch::Matchers::StartsWith;
  const TempDir folder;
  const std::string target = folder / "target";
  run_tool({"sh", "-c", "mkdir $0/from && head -c 3M /dev/urandom >$0/from/big", folder.path()});
  const auto refusal = [&](const std::string& words) {
    Client client(rsh(words));
    return sync(client, folder / "from", target);
  };
  CHECK_THAT(refusal("sh -c 'ulimit -f 1000; trap \"\" XFSZ; exec {command}' {host}"),
             StartsWith("h1: sync: ") && Contains("big: ") &&
                 (Contains("File too large") || Contains("Wrote only")));
  CHECK_THAT(refusal("sh -c 'dd bs=64k count=16 2>/dev/null | {command}' {host}"),
             StartsWith("h1: sync: ") && Contains("unexpected end of file"));
  std::filesystem::create_directories(folder / "tools");
  for (const char* name : {"mkdir", "mktemp", "rm"})
    std::filesystem::create_symlink(std::string("/bin/") + name, folder / "tools/" + name);
  const std::string without_tar = "env X={host} PATH=" + (folder / "tools") + " {command}";
  CHECK_THAT(refusal(without_tar), StartsWith("h1: sync: ") && Contains("tar: not found"));
  CHECK_THAT(refusal("sh -c 'echo \"no \033[31mpod\" >&2; exit 9' {host} {command}"),
             StartsWith("h1: ") && Contains("no pod"));
  write_file(folder / "file", "");
  Client client(rsh("sh -c 'exec {command}' {host}"));
  CHECK_THAT(sync(client, folder / "from", folder / "file/x"),
             StartsWith("h1: sync: mkdir " + (folder / "file/x: mkdir: ")));
  CHECK_THAT(sync(client, folder / "none", target),
             StartsWith("h1: sync: tar -C " + (folder / "none ended with exit code 2")));
}

TEST_CASE("command: a folder that the host shares is not written over itself", "[command]") {
  const TempDir folder;
  write_file(folder / "data", "mine");
  std::filesystem::create_directory_symlink(folder.path(), folder / "self");
  Client client(rsh("sh -c 'exec {command}' {host}"));
  const InPath tar("tar", "#!/bin/sh\necho copies >&2; exit 1\n");
  CHECK(sync(client, folder.path(), folder / "self") == "");
  CHECK_THAT(sync(client, folder.path(), folder / "other"), Catch::Matchers::Contains("copies"));
  CHECK(read_file(folder / "data") == "mine");
  CHECK(run_tool({"ls", "-A", folder.path()}) == "data\nother\nself\n");
}

}  // namespace
}  // namespace dt::test
