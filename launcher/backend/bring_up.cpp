#include "launcher/backend/bring_up.h"

#include <random>

#include "io/last_words.h"
#include "io/line_prefixer.h"
#include "io/within.h"

namespace dt::launcher {
namespace {

using io::awaitable;

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

BringUp::BringUp(io::asio::any_io_executor executor, std::vector<std::string> files, Exec& exec,
                 const BringUpLimits& limits, io::ThreadPool& threads, io::Log& log)
    : files_(std::move(files)),
      exec_(&exec),
      limits_(&limits),
      threads_(&threads),
      log_(&log),
      copies_(std::make_shared<io::Semaphore>(executor, limits.copies)),
      packing_(std::make_shared<io::Semaphore>(executor, 1)) {}

awaitable<Result<io::StreamPtr>> BringUp::open(Host host, std::vector<std::string> argv) {
  if (!bundle_) {
    auto loaded = load_bundle(files_);
    if (!loaded) co_return tl::unexpected(loaded.error());
    bundle_ = std::move(*loaded);
  }
  const std::string start = bundle_exec_script(*bundle_, argv);
  io::Semaphore::Permit permit;  // to copy
  for (bool copied = false;;) {
    auto started = co_await try_start(host, start);
    if (!started) co_return tl::unexpected(started.error());
    if (started->answer == kReadyLine) {
      io::StreamPtr program = program_stream(std::move(started->stream), host, argv.front());
      co_return std::move(program);
    }
    started->stream.reset();
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
    auto done = co_await copy(host, started->answer);
    copying_.erase(host);
    if (!done) co_return tl::unexpected(done.error());
    copied = true;
  }
}

awaitable<Result<BringUp::Started>> BringUp::try_start(Host host, std::string script) {
  auto stream = co_await exec_->open(host, script);
  if (!stream) co_return tl::unexpected(stream.error());
  auto answer = co_await io::within(limits_->start,
                                    read_answer(**stream, std::string(kAnswer), "the login shell"),
                                    "no sign of the agent's start");
  if (!answer) co_return tl::unexpected(answer.error().at(fmt::format("{}: exec", host)));
  if (answer->line.starts_with(kForeignLine))
    co_return tl::unexpected(foreign_host(*bundle_, answer->line.substr(kForeignLine.size()))
                                 .at(fmt::format("{}: exec", host)));
  Started started{std::move(answer->line), unread(std::move(*stream), std::move(answer->rest))};
  co_return std::move(started);
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
  auto done = co_await run_command(*exec_, host, script, input, limits_->copy);
  if (!done) co_return tl::unexpected(done.error());
  if (done->exit_code == kNoRoot)
    co_return fail(
        ErrorKind::kInvalid,
        "{}: bundle copy: no folder there takes the programs and runs them, not "
        "~/.cache, /var/tmp or /tmp ({}): let XDG_CACHE_HOME name one in the start files "
        "of the login shell",
        host, io::on_one_line(done->err));
  if (done->exit_code != 0)
    co_return fail(ErrorKind::kIo,
                   "{}: bundle copy: exit code {}: {}: is there room in ~/.cache, and is gzip "
                   "installed?",
                   host, done->exit_code, io::on_one_line(done->err));
  if (const std::size_t at = done->out.find(kRootLine); at != std::string::npos) {
    const std::string root = done->out.substr(at + kRootLine.size());
    log_->info("{}: the programs are in {}: in ~/.cache no program can be put and run ({})", host,
               io::plain(root.substr(0, root.find('\n'))), io::on_one_line(done->err));
  }
  co_return Result<void>();
}

std::string BringUp::doing(const Host& host) const {
  if (!copying_.contains(host)) return {};
  std::size_t bytes = 0;
  for (const BundleFile& file : bundle_->files) bytes += file.bytes.size();
  return fmt::format("the programs are copied to it ({:.1f} MB)", static_cast<double>(bytes) / 1e6);
}

}  // namespace dt::launcher
