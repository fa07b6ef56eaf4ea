#include "launcher/backend/ssh/bring_up.h"

#include <array>
#include <optional>
#include <random>

#include "io/within.h"
#include "launcher/backend/ssh/exec.h"

namespace dt::launcher {
namespace {

using io::awaitable;

/// Output of shell start-up files that may precede the answer.
constexpr std::size_t kMaxNoise = std::size_t{64} << 10;

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

/// The host's answer to a script of the bundle, after whatever start-up files print.
awaitable<Result<std::string>> read_first_line(SshStream& stream) {
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

}  // namespace

BringUp::BringUp(io::asio::any_io_executor executor, std::vector<std::string> files, Pool& pool,
                 const SshLimits& limits, ThreadPool& threads, io::Log& log)
    : files_(std::move(files)),
      pool_(&pool),
      limits_(&limits),
      threads_(&threads),
      log_(&log),
      copies_(std::make_shared<Semaphore>(executor, limits.copies)),
      packing_(std::make_shared<Semaphore>(executor, 1)) {}

awaitable<Result<std::unique_ptr<io::ByteStream>>> BringUp::open(Host host,
                                                                 std::vector<std::string> argv) {
  if (!bundle_) {
    auto loaded = load_bundle(files_);
    if (!loaded) co_return tl::unexpected(loaded.error());
    bundle_ = std::move(*loaded);
  }
  const std::string start = login_command(bundle_exec_script(*bundle_, argv));
  Semaphore::Permit permit;  // to copy
  for (bool copied = false;;) {
    std::unique_ptr<SshStream> stream;
    auto answer = co_await try_start(host, start, stream);
    if (!answer) co_return tl::unexpected(answer.error());
    if (*answer == kReadyLine) {
      std::unique_ptr<io::ByteStream> program =
          program_stream(std::move(stream), host, argv.front());
      co_return std::move(program);
    }
    stream.reset();
    if (copied)
      co_return fail(ErrorKind::kIo, "{}: bundle copy: the copied files are not there afterwards",
                     host);
    if (!permit) {
      const bool waits = copies_->all_taken();
      permit = co_await copies_->acquire();
      // Hosts that share a home need one copy, which may be there by now.
      if (waits) continue;
    }
    copying_.insert(host);
    auto done = co_await copy(host, *answer);
    copying_.erase(host);
    if (!done) co_return tl::unexpected(done.error());
    copied = true;
  }
}

awaitable<Result<std::string>> BringUp::try_start(Host host, std::string command,
                                                  std::unique_ptr<SshStream>& stream) {
  auto started = co_await pool_->exec(host, command);
  if (!started) co_return tl::unexpected(started.error());
  stream = std::move(*started);
  auto line =
      co_await io::within(limits_->exec, read_first_line(*stream), "no sign of the agent's start");
  if (!line) co_return tl::unexpected(line.error().at(fmt::format("{}: exec", host)));
  if (line->starts_with(kForeignLine))
    co_return tl::unexpected(foreign_host(*bundle_, line->substr(kForeignLine.size()))
                                 .at(fmt::format("{}: exec", host)));
  co_return std::move(*line);
}

awaitable<Result<void>> BringUp::pack() {
  const auto turn = co_await packing_->acquire();
  if (!packed_.empty()) co_return Result<void>();
  std::function<Result<std::vector<std::string>>()> work = [what = bundle_] {
    return pack_bundle(*what);
  };
  auto done = co_await threads_->finish(std::move(work));
  if (!done) co_return tl::unexpected(done.error());
  packed_ = std::move(*done);
  co_return Result<void>();
}

awaitable<Result<void>> BringUp::copy(Host host, std::string missing) {
  auto ready = co_await pack();
  if (!ready) co_return tl::unexpected(ready.error());
  const std::string token = fmt::format("{:08x}{:08x}", std::random_device{}(), random());
  std::vector<SentFile> sent;
  std::string input;
  for (std::size_t i = 0; i < bundle_->files.size(); ++i) {
    if (missing.find(bundle_->files[i].hash) == std::string::npos) continue;
    sent.push_back({i, packed_[i].size()});
    input += packed_[i];
  }
  log_->info("{}: copying the agent ({} of {} files, {:.1f} MB)", host, sent.size(),
             bundle_->files.size(), static_cast<double>(input.size()) / 1e6);
  const std::string script = bundle_copy_script(*bundle_, sent, token);
  auto done = co_await run_command(*pool_, host, script, input, limits_->copy);
  if (!done) co_return tl::unexpected(done.error());
  if (done->exit_code != 0)
    co_return fail(ErrorKind::kIo,
                   "{}: bundle copy: exit code {}: {}: is there room in "
                   "~/.cache, may programs run from there, and is gzip installed?",
                   host, done->exit_code, on_one_line(done->err));
  co_return Result<void>();
}

std::string BringUp::doing(const Host& host) const {
  if (!copying_.contains(host)) return {};
  std::size_t bytes = 0;
  for (const BundleFile& file : bundle_->files) bytes += file.bytes.size();
  return fmt::format("the programs are copied to it ({:.1f} MB)", static_cast<double>(bytes) / 1e6);
}

}  // namespace dt::launcher
