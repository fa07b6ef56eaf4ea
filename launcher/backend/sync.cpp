#include "launcher/backend/sync.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "io/asio.h"
#include "io/fd.h"
#include "io/last_words.h"
#include "io/process_end.h"
#include "io/program_output.h"
#include "io/within.h"
#include "launcher/backend/exec.h"
#include "launcher/shell_word.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using io::awaitable;
using namespace std::chrono_literals;

constexpr std::size_t kLastWords = 2000;
/// rsync's --timeout, too.
constexpr auto kSilence = 120s;
/// An empty file in the destination, with six letters more.
constexpr std::string_view kProbe = ".dtlaunch-sync-";

awaitable<Result<void>> by_rsync(std::string remote_shell, Host host, std::string source,
                                 std::string destination) {
  const bool v6 = host.name.find(':') != std::string::npos;
  io::ProgramCall call{
      .argv = {"rsync", "-az", "--secluded-args", fmt::format("--timeout={}", kSilence.count()),
               "--exclude=/.dtlaunch", "-e", std::move(remote_shell), source + "/"}};
  call.argv.push_back(
      fmt::format("{}{}{}:{}/", v6 ? "[" : "", host.name, v6 ? "]" : "", destination));
  auto ended = co_await io::awaited_output(std::move(call));
  if (!ended) co_return tl::unexpected(ended.error());
  if (!ended->status.clean())
    co_return fail(ErrorKind::kIo, "rsync ended with exit code {}: {}", ended->status.shell_code(),
                   io::on_one_line(ended->words, kLastWords));
  co_return Result<void>();
}

/// `script` reads an archive.
awaitable<Result<void>> by_tar(Exec& exec, Host host, std::string source, std::string script) {
  auto remote = co_await start_command(exec, host, script);
  if (!remote) co_return tl::unexpected(remote.error());
  auto output = io::make_pipe();
  if (!output) co_return tl::unexpected(output.error());
  const io::Fd none(::open("/dev/null", O_RDWR | O_CLOEXEC));
  auto tar = io::Subprocess::start({"tar", "-C", source, "--exclude=./.dtlaunch",
                                    fmt::format("--exclude=./{}*", kProbe), "-czf", "-", "."},
                                   {none.get(), output->write.get(), none.get()});
  if (!tar) co_return tl::unexpected(tar.error());
  output->write.reset();
  asio::posix::stream_descriptor archive(co_await asio::this_coro::executor,
                                         output->read.release());
  std::string piece(std::size_t{64} << 10, '\0');
  const auto buffer = asio::buffer(piece);
  for (;;) {
    auto [ec, n] = co_await archive.async_read_some(buffer, io::tok);
    if (ec == asio::error::eof) break;
    if (ec) co_return fail(ErrorKind::kClosed, "tar: {}", ec.message());
    const std::string_view bytes(piece.data(), n);
    auto sent = co_await io::within(kSilence, (*remote)->write(bytes), "tar there");
    if (!sent) break;  // the end of tar there has the reason
  }
  (*remote)->finish_writing();
  std::array<char, 512> rest{};
  for (;;) {
    auto n = co_await io::within(kSilence, (*remote)->read(rest), "tar there");
    if (!n) co_return tl::unexpected(n.error());
    if (*n == 0) break;
  }
  archive.close();
  auto end = co_await io::end_of(*tar);
  if (!end) co_return tl::unexpected(end.error());
  const int code = end->shell_code();
  if (code != 0)
    co_return fail(ErrorKind::kIo, "tar -C {} ended with exit code {}: can all of it be read?",
                   source, code);
  co_return Result<void>();
}

}  // namespace

awaitable<Result<void>> sync_folder(Backend& backend, std::shared_ptr<io::Semaphore> window,
                                    Host host, std::string source, std::string destination) {
  while (source.size() > 1 && source.back() == '/') source.pop_back();
  while (destination.size() > 1 && destination.back() == '/') destination.pop_back();
  Exec* exec = backend.exec(host);
  if (exec == nullptr) co_return fail(ErrorKind::kInvalid, "{}: sync: no command runs there", host);
  const bool may_rsync = io::in_path("rsync") && !backend.remote_shell(host).empty();
  const std::string prepare =
      fmt::format("mkdir -p {0} && cd {0} || exit 1; {1}mktemp {2}XXXXXX", shell_word(destination),
                  may_rsync ? "command -v rsync >/dev/null && exit 0; " : "", kProbe);
  auto ready = co_await run_command(*exec, host, prepare, "", 60s);
  if (!ready) co_return tl::unexpected(ready.error());
  if (ready->exit_code != 0)
    co_return fail(ErrorKind::kIo, "{}: sync: mkdir {}: {}", host, destination,
                   io::on_one_line(ready->err));
  const io::Semaphore::Permit permit = co_await window->acquire();
  Result<void> done;
  if (const std::size_t at = ready->out.find(kProbe); at == std::string::npos) {
    done = co_await by_rsync(backend.remote_shell(host), host, source, destination);
  } else {
    const std::string probe = ready->out.substr(at, kProbe.size() + 6);
    // A host that sees the present folder there: tar would write what it reads.
    if (::unlink((source + "/" + probe).c_str()) == 0) co_return Result<void>();
    std::string script = fmt::format("cd {} && rm -f {} && exec tar -xzf -",
                                     shell_word(destination), shell_word(probe));
    done = co_await by_tar(*exec, host, source, std::move(script));
  }
  if (!done) co_return tl::unexpected(done.error().at(fmt::format("{}: sync", host)));
  co_return Result<void>();
}

}  // namespace dt::launcher
