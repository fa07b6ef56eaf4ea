/// Sends bytes that are hard to carry to a host and back, by the program that starts commands
/// there; also a script full of characters that shells interpret.
///
///     starter_echo KIND HOST [JOB|RSH]     KIND as for --launcher; JOB: Slurm's; RSH: as for --rsh
///
/// Exits with 0 when all came back as it was sent.
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "io/asio.h"
#include "io/log.h"
#include "io/task_group.h"
#include "io/within.h"
#include "launcher/backend/command_backend.h"
#include "launcher/backend/lines_stream.h"

namespace {

using namespace dt;
using namespace std::chrono_literals;

std::vector<std::string> hard_bytes() {
  std::string all(1 << 20, '\0');
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 7 + i / 256);
  return {"abc", std::string(64 << 10, 'x'), std::string(64 << 10, '\n'), std::move(all)};
}

io::awaitable<Result<std::string>> read_back(io::ByteStream& from, std::size_t size) {
  std::string got;
  std::string piece(64 << 10, '\0');
  while (got.size() < size) {
    auto n = co_await from.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
    got.append(piece, 0, *n);
  }
  co_return std::move(got);
}

io::awaitable<void> send(io::ByteStream& to, std::string bytes) { co_await to.write(bytes); }

io::awaitable<std::string> try_bytes(launcher::CommandBackend& backend, Host host, bool in_lines,
                                     io::TaskGroup& writers) {
  auto started = co_await launcher::start_command(*backend.exec(host), host, "exec cat");
  if (!started) co_return started.error().message;
  launcher::CommandStream& command = **started;
  std::unique_ptr<io::ByteStream> stream = std::move(*started);
  if (in_lines) stream = launcher::lines_stream(std::move(stream));
  for (const std::string& sent : hard_bytes()) {
    writers.spawn(send(*stream, sent));
    auto got = co_await io::within(60s, read_back(*stream, sent.size()), "reading back");
    if (!got) co_return got.error().message;
    if (*got != sent)
      co_return fmt::format("{} bytes came back otherwise than they were sent", sent.size());
  }
  co_await writers.join();
  // Where its starter is killed first, the command may stay.
  command.finish_writing();
  std::string rest(1, '\0');
  auto end = co_await io::within(60s, stream->read(rest), "the end");
  co_return end ? "" : end.error().message;
}

io::awaitable<std::string> try_words(launcher::CommandBackend& backend, Host host) {
  const std::string script = "printf %s ''\\''\"$ \\;*~#!&|<>`\n'; exit 7";
  auto result = co_await launcher::run_command(*backend.exec(host), host, script, "", 60s);
  if (!result) co_return result.error().message;
  if (result->out != "'\"$ \\;*~#!&|<>`\n") co_return "the script printed: " + result->out;
  if (result->exit_code != 7)
    co_return fmt::format("exit code {}: {}", result->exit_code, result->err);
  co_return "";
}

io::awaitable<void> try_all(launcher::CommandBackend& backend, Host host, bool in_lines,
                            io::TaskGroup& writers, std::string& failure) {
  failure = co_await try_words(backend, host);
  if (failure.empty()) failure = co_await try_bytes(backend, host, in_lines, writers);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto kind = words.size() < 2 ? std::nullopt : starter_kind(words[0]);
  if (!kind) {
    std::fputs("usage: starter_echo KIND HOST [JOB|RSH]\n", stderr);
    return 2;
  }
  Starter starter;
  starter.kind = *kind;
  if (words.size() > 2) (*kind == StarterKind::kCommand ? starter.rsh : starter.job) = words[2];
  io::asio::io_context context(1);
  io::FdLog log(2);
  launcher::CommandBackend backend(context.get_executor(), starter, {}, log);
  io::TaskGroup writers(context.get_executor());
  io::TaskGroup tasks(context.get_executor());
  std::string failure;
  const Host host{"", words[1], 0};
  tasks.spawn(try_all(backend, host, traits_of(starter).passes_lines, writers, failure));
  while (!tasks.idle() || !writers.idle()) context.run_one();
  if (failure.empty()) return 0;
  fmt::print(stderr, "starter_echo: {}\n", failure);
  return 1;
}
