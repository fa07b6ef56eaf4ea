/// Runs one command on many hosts at once with the ssh backend, and exits: the least that a
/// launcher built on this backend can do. launch_bench.sh compares it with dtlaunch, pdsh and
/// clush.
///
///     launch_bench plain  CONFIG PORT COMMAND HOST...    the command alone
///     launch_bench agents CONFIG PORT COMMAND HOST...    below an agent with its guard, as in a
///     job:
///                                                        no supervisor, journal or logs
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/frame_channel.h"
#include "io/log.h"
#include "io/subprocess.h"
#include "io/task_group.h"
#include "launcher/backend/ssh/ssh.h"

namespace {

using namespace dt;

struct Bench {
  launcher::SshBackend& backend;
  io::asio::io_context& context;
  std::string job;
  std::string command;
};

/// Empty: the command ended with 0 on the host.
io::awaitable<std::string> run_plain(Bench& bench, Host host) {
  auto result = co_await launcher::run_command(*bench.backend.exec(host), host, bench.command, "",
                                               std::chrono::seconds(120));
  if (!result) co_return result.error().message;
  co_return result->exit_code == 0 ? "" : fmt::format("{}: {}", host, result->err);
}

/// What the supervisor says to an agent for a process that ends by itself.
io::awaitable<std::string> converse(Bench& bench, io::FrameChannel& channel, const Host& host) {
  const ProcessId process{Role::kWorker, 0};
  AgentHello hello;
  hello.job = bench.job;
  hello.host = to_string(host);
  hello.term = Term(1);
  channel.send(hello);
  for (;;) {
    const auto frame = co_await channel.receive();
    // The agent closes the connection after Shutdown, when all has ended there.
    if (!frame && frame.error().kind == ErrorKind::kClosed) co_return "";
    if (!frame) co_return frame.error().message;
    if (frame->type == AgentState::kType) {
      StartProcess start;
      start.process = process;
      start.argv = {"sh", "-c", bench.command};
      start.cwd = std::string(1, '/');
      channel.send(start);
    } else if (frame->type == ProcessExited::kType) {
      const auto exited = wire::parse<ProcessExited>(frame->body);
      if (!exited || !exited->status.clean()) co_return fmt::format("{}: it failed", host);
      channel.send(AckExit{process});
      channel.send(Shutdown{});
    } else if (frame->type == ProcessFailed::kType || frame->type == Refused::kType) {
      co_return fmt::format("{}: the agent refused", host);
    }
  }
}

io::awaitable<std::string> run_agent(Bench& bench, Host host) {
  // On lines of their own: with g++ 12 an expression with co_await has no braces.
  std::vector<std::string> argv = {"dtagent", "--attach",      "--job",   bench.job,
                                   "--host",  to_string(host), "--start", "--first"};
  auto stream = co_await bench.backend.open(host, std::move(argv));
  if (!stream) co_return stream.error().message;
  io::FrameChannel channel(bench.context.get_executor(), std::move(*stream));
  io::TaskGroup writer(bench.context.get_executor());
  writer.spawn(channel.write_loop());
  std::string failure = co_await converse(bench, channel, host);
  channel.close();
  co_await writer.join();
  co_return failure;
}

/// The files that dtsupervisor brings to its hosts.
std::vector<std::string> bundle() {
  std::vector<std::string> files;
  for (const char* name : {"dtagent", "dtserver", "dtgpucheck"})
    files.push_back((io::program_folder() / name).string());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 5 || (words[0] != "plain" && words[0] != "agents")) {
    std::fputs("usage: launch_bench plain|agents CONFIG PORT COMMAND HOST...\n", stderr);
    return 2;
  }
  const bool has_agents = words[0] == "agents";
  io::asio::io_context context(1);
  io::FdLog log(2);
  io::SshOptions options;
  options.config_file = words[1];
  options.port = static_cast<std::uint16_t>(std::strtoul(words[2].c_str(), nullptr, 10));
  launcher::SshBackend backend(context.get_executor(), options,
                               has_agents ? bundle() : std::vector<std::string>(), log);
  Bench bench{backend, context, fmt::format("bench-{}", ::getpid()), words[3]};
  io::TaskGroup group(context.get_executor());
  std::size_t failed = 0;
  std::size_t left = words.size() - 4;
  auto one = [&](std::string name) -> io::awaitable<void> {
    Host host;
    host.name = std::move(name);
    auto run = has_agents ? run_agent(bench, host) : run_plain(bench, host);
    const std::string failure = co_await std::move(run);
    if (!failure.empty()) {
      log.error("{}", failure);
      ++failed;
    }
    if (--left == 0) context.stop();
  };
  for (std::size_t i = 4; i < words.size(); ++i) group.spawn(one(words[i]));
  context.run();
  std::fflush(nullptr);
  std::_Exit(failed == 0 ? 0 : 1);
}
