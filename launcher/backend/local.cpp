#include "launcher/backend/local.h"

#include "core/launch/starter.h"
#include "io/subprocess.h"
#include "launcher/backend/child_stream.h"

namespace dt::launcher {

using io::awaitable;

awaitable<Result<ExecStreamPtr>> LocalExec::open(Host, std::string script) {
  const ChildProgram shell{.path = kHostShell, .argv = {"sh", "-c", std::move(script)}};
  co_return child_stream(co_await io::asio::this_coro::executor, shell);
}

LocalBackend::LocalBackend(std::string program)
    : program_(program.empty() ? (io::program_folder() / "dtagent").string() : std::move(program)) {
}

awaitable<Result<io::StreamPtr>> LocalBackend::open(Host host, std::vector<std::string> argv) {
  const std::string name = argv.front();
  // What the supervisor has sent still reaches the agent when the supervisor has ended.
  const ChildProgram program{.path = program_, .argv = std::move(argv), .dies_with_us = false};
  auto started = child_stream(co_await io::asio::this_coro::executor, program);
  if (!started) co_return tl::unexpected(started.error());
  io::StreamPtr stream = program_stream(std::move(*started), host, name);
  co_return stream;
}

}  // namespace dt::launcher
