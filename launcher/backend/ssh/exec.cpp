#include "launcher/backend/ssh/exec.h"

#include <algorithm>

#include "io/within.h"
#include "launcher/backend/bundle.h"

namespace dt::launcher {
namespace {

using io::awaitable;

class ProgramStream final : public CommandStream {
 public:
  ProgramStream(std::unique_ptr<SshStream> stream, std::string host, std::string program)
      : stream_(std::move(stream)), host_(std::move(host)), program_(std::move(program)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    auto n = co_await stream_->read(into);
    if (!n || *n > 0) co_return n;
    const int code = stream_->exit_code();
    if (code == 0) co_return n;
    if (code < 0) co_return tl::unexpected(stream_->no_exit_code().at(host_));
    const std::string words = on_one_line(stream_->stderr_tail());
    co_return fail(
        ErrorKind::kUnavailable, "{}: {}", host_,
        words.empty() ? fmt::format("{} ended with exit code {}", program_, code) : words);
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override { stream_->close(); }
  void finish_writing() override { stream_->finish_writing(); }

 private:
  std::unique_ptr<SshStream> stream_;
  std::string host_;
  std::string program_;
};

/// Writes `input`, reads to the end.
awaitable<Result<CommandResult>> talk(SshStream& stream, std::string_view input) {
  auto sent = co_await stream.write(input);  // a command that does not read its input is no error
  stream.finish_writing();
  CommandResult result;
  std::string piece(std::size_t{64} << 10, '\0');
  for (;;) {
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
    result.out.append(piece, 0, *n);
  }
  result.exit_code = stream.exit_code();
  result.err = stream.stderr_tail();
  if (result.exit_code < 0) co_return tl::unexpected(stream.no_exit_code());
  co_return std::move(result);
}

}  // namespace

std::string on_one_line(std::string_view text, std::size_t most) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  std::string out(text.substr(text.size() > most ? text.size() - most : 0));
  std::erase(out, '\r');  // ssh ends its lines with both
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

std::unique_ptr<CommandStream> program_stream(std::unique_ptr<SshStream> stream, const Host& host,
                                              std::string program) {
  return std::make_unique<ProgramStream>(std::move(stream), to_string(host), std::move(program));
}

awaitable<Result<CommandResult>> run_command(Pool& pool, Host host, std::string shell_command,
                                             std::string_view input, Duration deadline) {
  auto stream = co_await pool.exec(host, login_command(shell_command));
  if (!stream) co_return tl::unexpected(stream.error());
  auto result = co_await io::within(deadline, talk(**stream, input), "the command");
  if (!result) co_return tl::unexpected(result.error().at(to_string(host)));
  co_return std::move(*result);
}

awaitable<Result<std::unique_ptr<CommandStream>>> start_command(Pool& pool, Host host,
                                                                std::string shell_command) {
  auto stream = co_await pool.exec(host, login_command(shell_command));
  if (!stream) co_return tl::unexpected(stream.error());
  co_return program_stream(std::move(*stream), host, "the command");
}

}  // namespace dt::launcher
