#include "launcher/backend/exec.h"

#include <array>

#include "io/last_words.h"
#include "io/within.h"

namespace dt::launcher {
namespace {

using io::awaitable;

/// Output of shell start-up files that may precede an answer.
constexpr std::size_t kMaxNoise = std::size_t{64} << 10;

class ProgramStream final : public CommandStream {
 public:
  ProgramStream(ExecStreamPtr stream, std::string host, std::string program)
      : stream_(std::move(stream)), host_(std::move(host)), program_(std::move(program)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    auto n = co_await stream_->read(into);
    if (!n || *n > 0) co_return n;
    const int code = stream_->exit_code();
    if (code == 0) co_return n;
    if (code < 0) co_return tl::unexpected(stream_->no_exit_code().at(host_));
    const std::string words = io::on_one_line(stream_->stderr_tail());
    co_return fail(
        ErrorKind::kUnavailable, "{}: {}", host_,
        words.empty() ? fmt::format("{} ended with exit code {}", program_, code) : words);
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override { stream_->close(); }
  void finish_writing() override { stream_->finish_writing(); }

 private:
  ExecStreamPtr stream_;
  std::string host_;
  std::string program_;
};

/// A stream of which some was read already.
class BegunStream final : public ExecStream {
 public:
  BegunStream(ExecStreamPtr stream, std::string begun)
      : stream_(std::move(stream)), begun_(std::move(begun)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    if (begun_.empty()) co_return co_await stream_->read(into);
    const std::size_t taken = begun_.copy(into.data(), into.size());
    begun_.erase(0, taken);
    co_return taken;
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override { stream_->close(); }
  void finish_writing() override { stream_->finish_writing(); }
  [[nodiscard]] int exit_code() const override { return stream_->exit_code(); }
  [[nodiscard]] Error no_exit_code() const override { return stream_->no_exit_code(); }
  [[nodiscard]] std::string stderr_tail() const override { return stream_->stderr_tail(); }
  void on_stderr(std::function<void(std::string_view)> take) override {
    stream_->on_stderr(std::move(take));
  }
  void kill_children() override { stream_->kill_children(); }

 private:
  ExecStreamPtr stream_;
  std::string begun_;
};

/// Writes `input`, reads to the end.
awaitable<Result<CommandResult>> talk(ExecStream& stream, std::string_view input) {
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

std::unique_ptr<CommandStream> program_stream(ExecStreamPtr stream, const Host& host,
                                              std::string program) {
  return std::make_unique<ProgramStream>(std::move(stream), to_string(host), std::move(program));
}

ExecStreamPtr unread(ExecStreamPtr stream, std::string bytes) {
  if (bytes.empty()) return stream;
  return std::make_unique<BegunStream>(std::move(stream), std::move(bytes));
}

awaitable<Result<FirstLine>> read_answer(ExecStream& stream, std::string prefix, std::string who) {
  std::string seen;
  std::array<char, 4096> piece{};
  for (;;) {
    for (std::size_t at = seen.find(prefix); at != std::string::npos;
         at = seen.find(prefix, at + 1)) {
      const std::size_t end = seen.find('\n', at);
      if (end == std::string::npos || (at > 0 && seen[at - 1] != '\n')) continue;
      FirstLine answer{seen.substr(at, end - at), seen.substr(end + 1)};
      co_return std::move(answer);
    }
    if (seen.size() > kMaxNoise)
      co_return fail(ErrorKind::kProtocol,
                     "{} prints without end before any command: look at its start-up files", who);
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) {
      if (stream.exit_code() < 0) co_return tl::unexpected(stream.no_exit_code());
      co_return fail(ErrorKind::kUnavailable, "{} ended with exit code {}: {}", who,
                     stream.exit_code(),
                     io::on_one_line(stream.stderr_tail().empty() ? seen : stream.stderr_tail()));
    }
    seen.append(piece.data(), *n);
  }
}

awaitable<Result<CommandResult>> run_command(Exec& exec, Host host, std::string script,
                                             std::string_view input, Duration deadline) {
  auto stream = co_await exec.open(host, script);
  if (!stream) co_return tl::unexpected(stream.error());
  auto result = co_await io::within(deadline, talk(**stream, input), "the command");
  if (!result) co_return tl::unexpected(result.error().at(to_string(host)));
  co_return std::move(*result);
}

awaitable<Result<std::unique_ptr<CommandStream>>> start_command(Exec& exec, Host host,
                                                                std::string script) {
  auto stream = co_await exec.open(host, script);
  if (!stream) co_return tl::unexpected(stream.error());
  co_return program_stream(std::move(*stream), host, "the command");
}

}  // namespace dt::launcher
