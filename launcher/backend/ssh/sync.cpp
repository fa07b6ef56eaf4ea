#include "launcher/backend/ssh/sync.h"

#include <fcntl.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "io/asio.h"
#include "io/last_words.h"
#include "io/process_end.h"
#include "io/subprocess.h"
#include "launcher/backend/exec.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;
using namespace std::chrono_literals;

constexpr std::size_t kLastWords = 2000;

/// A local tool and the pipe its output comes by.
struct Tool {
  io::Subprocess process;
  asio::posix::stream_descriptor output;
};

/// stderr goes into the same pipe, or nowhere.
Result<Tool> start_tool(const asio::any_io_executor& executor, const std::vector<std::string>& argv,
                        bool with_errors) {
  auto output = io::make_pipe();
  if (!output) return tl::unexpected(output.error());
  const int out = output->write.get();
  const io::Fd none(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto process = io::Subprocess::start(argv, {none.get(), out, with_errors ? out : none.get()});
  if (!process) return tl::unexpected(process.error());
  return Tool{std::move(*process),
              asio::posix::stream_descriptor(executor, output->read.release())};
}

awaitable<Result<void>> by_rsync(std::string remote_shell, Host host, std::string source,
                                 std::string destination) {
  const bool v6 = host.name.find(':') != std::string::npos;
  std::vector<std::string> argv = {"rsync",
                                   "-az",
                                   "--secluded-args",
                                   "--timeout=120",
                                   "--exclude=/.dtlaunch",
                                   "-e",
                                   std::move(remote_shell),
                                   source + "/"};
  argv.push_back(fmt::format("{}{}{}:{}/", v6 ? "[" : "", host.name, v6 ? "]" : "", destination));
  auto tool = start_tool(co_await asio::this_coro::executor, argv, true);
  if (!tool) co_return tl::unexpected(tool.error());
  std::string words;
  std::array<char, 4096> piece{};
  const auto buffer = asio::buffer(piece);
  for (;;) {
    auto [ec, n] = co_await tool->output.async_read_some(buffer, io::tok);
    if (ec == asio::error::eof) break;
    if (ec) co_return fail(ErrorKind::kClosed, "rsync: {}", ec.message());
    words.append(piece.data(), n);
    if (words.size() > 2 * kLastWords) words.erase(0, words.size() - kLastWords);
  }
  auto end = co_await io::end_of(tool->process);
  if (!end) co_return tl::unexpected(end.error());
  const int code = end->shell_code();
  if (code != 0)
    co_return fail(ErrorKind::kIo, "rsync ended with exit code {}: {}", code,
                   io::on_one_line(words, kLastWords));
  co_return Result<void>();
}

awaitable<Result<void>> by_tar(SshBackend& backend, Host host, std::string source,
                               std::string destination) {
  auto remote = co_await start_command(*backend.exec(host), host,
                                       "exec tar -xzf - -C " + shell_word(destination));
  if (!remote) co_return tl::unexpected(remote.error());
  const std::vector<std::string> argv = {"tar",  "-C", source, "--exclude=./.dtlaunch",
                                         "-czf", "-",  "."};
  auto tool = start_tool(co_await asio::this_coro::executor, argv, false);
  if (!tool) co_return tl::unexpected(tool.error());
  std::string piece(std::size_t{64} << 10, '\0');
  const auto buffer = asio::buffer(piece);
  for (;;) {
    auto [ec, n] = co_await tool->output.async_read_some(buffer, io::tok);
    if (ec == asio::error::eof) break;
    if (ec) co_return fail(ErrorKind::kClosed, "tar: {}", ec.message());
    const std::string_view bytes(piece.data(), n);
    auto sent = co_await (*remote)->write(bytes);
    if (!sent) break;  // the end of tar there has the reason
  }
  (*remote)->finish_writing();
  std::array<char, 512> rest{};
  for (;;) {
    auto n = co_await (*remote)->read(rest);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
  }
  tool->output.close();
  auto end = co_await io::end_of(tool->process);
  if (!end) co_return tl::unexpected(end.error());
  const int code = end->shell_code();
  if (code != 0)
    co_return fail(ErrorKind::kIo, "tar -C {} ended with exit code {}: can all of it be read?",
                   source, code);
  co_return Result<void>();
}

}  // namespace

awaitable<Result<void>> sync_folder(SshBackend& backend, std::shared_ptr<io::Semaphore> window,
                                    Host host, std::string source, std::string destination) {
  while (source.size() > 1 && source.back() == '/') source.pop_back();
  while (destination.size() > 1 && destination.back() == '/') destination.pop_back();
  const std::string prepare =
      fmt::format("mkdir -p {} || exit 1; command -v rsync >/dev/null && echo rsync; exit 0",
                  shell_word(destination));
  auto ready = co_await run_command(*backend.exec(host), host, prepare, "", 60s);
  if (!ready) co_return tl::unexpected(ready.error());
  if (ready->exit_code != 0)
    co_return fail(ErrorKind::kIo, "{}: sync: mkdir {}: {}", host, destination,
                   io::on_one_line(ready->err));
  const io::Semaphore::Permit permit = co_await window->acquire();
  Result<void> done;
  if (ready->out.find("rsync") != std::string::npos && io::in_path("rsync")) {
    done = co_await by_rsync(backend.ssh_command(host), host, source, destination);
  } else {
    done = co_await by_tar(backend, host, source, destination);
  }
  if (!done) co_return tl::unexpected(done.error().at(fmt::format("{}: sync", host)));
  co_return Result<void>();
}

}  // namespace dt::launcher
