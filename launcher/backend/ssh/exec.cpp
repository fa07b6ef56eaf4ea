#include <algorithm>
#include <array>
#include <random>

#include "io/within.h"
#include "launcher/backend/ssh/internal.h"

namespace dt::launcher {
namespace {

/// Output of shell start-up files that may come before our own first line.
constexpr std::size_t kMaxNoise = std::size_t{64} << 10;

/// A stream to a program of ours: its failure is an error of the reader, in its own words.
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

/// Why the bundle's programs cannot run on a host that is a `machine`.
Error foreign_host(const Bundle& bundle, const std::string& machine) {
  if (machine == bundle.needs.machine)
    return {ErrorKind::kInvalid,
            fmt::format("the host has no {}, without which dtagent does not start: a system with "
                        "glibc for {} is needed there",
                        bundle.needs.loader, machine)};
  return {ErrorKind::kInvalid,
          fmt::format("the host is of architecture {}, dtlaunch here is built for {}: all hosts "
                      "must be of the architecture of the machine dtlaunch runs on",
                      machine, bundle.needs.machine)};
}

}  // namespace

std::string on_one_line(std::string_view text, std::size_t most) {
  std::string out(text.substr(text.size() > most ? text.size() - most : 0));
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

awaitable<Result<std::string>> SshBackend::Impl::read_first_line(SshStream& stream) {
  std::string seen;
  std::array<char, 4096> piece{};
  for (;;) {
    for (std::size_t at = seen.find(kAnswer); at != std::string::npos;
         at = seen.find(kAnswer, at + 1)) {
      const std::size_t end = seen.find('\n', at);
      if (end == std::string::npos || (at > 0 && seen[at - 1] != '\n')) continue;
      stream.unread(seen.substr(end + 1));
      co_return seen.substr(at, end - at);
    }
    if (seen.size() > kMaxNoise)
      co_return fail(ErrorKind::kProtocol,
                     "the login shell prints without end before any command: look at its start-up "
                     "files");
    auto n = co_await stream.read(piece);
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) {
      if (stream.exit_code() < 0) co_return tl::unexpected(stream.no_exit_code());
      co_return fail(ErrorKind::kUnavailable, "the login shell ended with exit code {}: {}",
                     stream.exit_code(),
                     on_one_line(stream.stderr_tail().empty() ? seen : stream.stderr_tail()));
    }
    seen.append(piece.data(), *n);
  }
}

awaitable<Result<CommandResult>> SshBackend::Impl::run(Host host, std::string script,
                                                       std::string_view input, Duration deadline) {
  const std::string command = login_command(script);
  auto stream = co_await exec(host, command);
  if (!stream) co_return tl::unexpected(stream.error());
  SshStream& channel = **stream;
  auto talk = [](SshStream& s, std::string_view in) -> awaitable<Result<CommandResult>> {
    auto sent = co_await s.write(in);  // a command that does not read its input is no error
    s.finish_writing();
    CommandResult result;
    std::string piece(std::size_t{64} << 10, '\0');
    for (;;) {
      auto n = co_await s.read(piece);
      if (!n) co_return tl::unexpected(n.error());
      if (*n == 0) break;
      result.out.append(piece, 0, *n);
    }
    result.exit_code = s.exit_code();
    result.err = s.stderr_tail();
    if (result.exit_code < 0) co_return tl::unexpected(s.no_exit_code());
    co_return std::move(result);
  };
  auto result = co_await io::within(deadline, talk(channel, input), "the command");
  if (!result) co_return tl::unexpected(result.error().at(to_string(host)));
  co_return std::move(*result);
}

awaitable<Result<void>> SshBackend::Impl::pack() {
  const auto turn = co_await packing->acquire();
  if (!packed.empty()) co_return Result<void>();
  std::function<Result<std::vector<std::string>>()> work = [what = bundle] {
    return pack_bundle(*what);
  };
  auto done = co_await threads.finish(std::move(work));
  if (!done) co_return tl::unexpected(done.error());
  packed = std::move(*done);
  co_return Result<void>();
}

awaitable<Result<void>> SshBackend::Impl::copy_bundle(Host host, std::string missing) {
  auto ready = co_await pack();
  if (!ready) co_return tl::unexpected(ready.error());
  const std::string token = fmt::format("{:08x}{:08x}", std::random_device{}(), random());
  std::vector<SentFile> sent;
  std::string input;
  for (std::size_t i = 0; i < bundle->files.size(); ++i) {
    if (missing.find(bundle->files[i].hash) == std::string::npos) continue;
    sent.push_back({i, packed[i].size()});
    input += packed[i];
  }
  log->info("{}: copying the agent ({} of {} files, {:.1f} MB)", host, sent.size(),
            bundle->files.size(), static_cast<double>(input.size()) / 1e6);
  const std::string script = bundle_copy_script(*bundle, sent, token);
  auto done = co_await run(host, script, input, limits.copy);
  if (!done) co_return tl::unexpected(done.error());
  if (done->exit_code != 0)
    co_return fail(ErrorKind::kIo,
                   "{}: bundle copy: exit code {}: {}: is there room in "
                   "~/.cache, may programs run from there, and is gzip installed?",
                   host, done->exit_code, on_one_line(done->err));
  co_return Result<void>();
}

awaitable<Result<std::unique_ptr<io::ByteStream>>> SshBackend::open(Host host,
                                                                    AgentCommand command) {
  const auto self = impl_;
  if (!self->bundle) {
    auto loaded = load_bundle(self->bundle_files);
    if (!loaded) co_return tl::unexpected(loaded.error());
    self->bundle = std::move(*loaded);
  }
  const std::string start = login_command(bundle_exec_script(*self->bundle, command.argv));
  std::optional<Semaphore::Permit> turn;  // to copy
  for (bool copied = false;;) {
    auto stream = co_await self->exec(host, start);
    if (!stream) co_return tl::unexpected(stream.error());
    auto line = co_await io::within(self->limits.exec, self->read_first_line(**stream),
                                    "no sign of the agent's start");
    if (!line) co_return tl::unexpected(line.error().at(fmt::format("{}: exec", host)));
    if (*line == kReadyLine) {
      std::unique_ptr<io::ByteStream> program = std::make_unique<ProgramStream>(
          std::move(*stream), to_string(host), command.argv.front());
      co_return std::move(program);
    }
    if (line->starts_with(kForeignLine))
      co_return tl::unexpected(foreign_host(*self->bundle, line->substr(kForeignLine.size()))
                                   .at(fmt::format("{}: exec", host)));
    if (copied)
      co_return fail(ErrorKind::kIo, "{}: bundle copy: the copied files are not there afterwards",
                     host);
    stream->reset();
    if (!turn) {
      const bool waits = self->copies->all_taken();
      turn = co_await self->copies->acquire();
      // Hosts that share a home need one copy: another may have brought it meanwhile.
      if (waits) continue;
    }
    self->copying.insert(host);
    auto done = co_await self->copy_bundle(host, *line);
    self->copying.erase(host);
    if (!done) co_return tl::unexpected(done.error());
    copied = true;
  }
}

awaitable<Result<std::unique_ptr<CommandStream>>> SshBackend::start(Host host,
                                                                    std::string shell_command) {
  const auto self = impl_;
  const std::string command = login_command(shell_command);
  auto stream = co_await self->exec(host, command);
  if (!stream) co_return tl::unexpected(stream.error());
  std::unique_ptr<CommandStream> program =
      std::make_unique<ProgramStream>(std::move(*stream), to_string(host), "the command");
  co_return std::move(program);
}

}  // namespace dt::launcher
