#include "launcher/backend/local.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <optional>

#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/fd.h"
#include "io/process_tree.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using io::tok;

/// From the end of its stream to the end of the bridge.
constexpr auto kExitDeadline = std::chrono::seconds(1);

/// The bridge process. Its exit is taken whenever it comes, also after the stream is gone.
struct Bridge {
  Bridge(const asio::any_io_executor& executor, pid_t child, io::Fd handle)
      : pid(child),
        pidfd(executor, handle.release()),
        ended(executor, asio::steady_timer::time_point::max()) {}
  pid_t pid;
  asio::posix::stream_descriptor pidfd;
  std::optional<int> status;
  asio::steady_timer ended;
};

void reap_when_ended(const std::shared_ptr<Bridge>& bridge) {
  const auto reap = [bridge](const boost::system::error_code& ec) {
    int status = 0;
    const pid_t ended = ::waitpid(bridge->pid, &status, WNOHANG);
    if (ended == 0 && !ec) return reap_when_ended(bridge);  // woken for nothing
    if (ended == bridge->pid) bridge->status = status;
    bridge->ended.cancel();
  };
  bridge->pidfd.async_wait(asio::posix::stream_descriptor::wait_read, reap);
}

std::string read_words(const io::Fd& pipe) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::read(pipe.get(), buffer.data(), buffer.size());
  std::string words(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

class LocalStream final : public io::ByteStream {
 public:
  LocalStream(std::unique_ptr<io::ByteStream> stream, std::shared_ptr<Bridge> bridge, io::Fd words)
      : stream_(std::move(stream)), bridge_(std::move(bridge)), words_(std::move(words)) {}

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    auto n = co_await stream_->read(into);
    if (!n || *n > 0) co_return n;
    if (!bridge_->status) {
      bridge_->ended.expires_after(kExitDeadline);
      co_await bridge_->ended.async_wait(tok);
    }
    if (!bridge_->status || *bridge_->status == 0) co_return n;
    const std::string words = read_words(words_);
    co_return fail(ErrorKind::kUnavailable, "{}",
                   words.empty() ? "dtagent --attach ended without a word" : words);
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override { stream_->close(); }

 private:
  std::unique_ptr<io::ByteStream> stream_;
  std::shared_ptr<Bridge> bridge_;
  io::Fd words_;
};

/// In a session of its own: Ctrl-C at the terminal does not reach it.
Result<pid_t> start_bridge(const std::string& program, const std::vector<std::string>& argv,
                           const io::Fd& stream, const io::Fd& errors) {
  const io::RestoredDescriptorLimit restored;
  return io::spawn(program, argv, {stream.get(), stream.get(), errors.get()},
                   io::ProcessGroup::kOwnSession);
}

awaitable<Result<std::unique_ptr<io::ByteStream>>> open_bridge(std::string program,
                                                               std::vector<std::string> argv) {
  const auto executor = co_await asio::this_coro::executor;
  auto sockets = io::make_socket_pair();
  if (!sockets) co_return tl::unexpected(sockets.error());
  auto words = io::make_pipe();
  if (!words) co_return tl::unexpected(words.error());
  ::fcntl(words->read.get(), F_SETFL, O_NONBLOCK);

  const auto pid = start_bridge(program, argv, sockets->theirs, words->write);
  if (!pid) co_return tl::unexpected(pid.error());
  io::Fd handle = open_pidfd(*pid);
  if (!handle) {
    const int number = errno;
    ::kill(*pid, SIGKILL);
    ::waitpid(*pid, nullptr, 0);
    co_return tl::unexpected(errno_error(number, "watch dtagent --attach (pidfd_open)"));
  }
  auto bridge = std::make_shared<Bridge>(executor, *pid, std::move(handle));
  reap_when_ended(bridge);
  const asio::local::stream_protocol unix_domain;
  io::UnixSocket socket(executor, unix_domain, sockets->ours.release());
  auto carried = io::unix_stream(std::move(socket));
  std::unique_ptr<io::ByteStream> stream =
      std::make_unique<LocalStream>(std::move(carried), std::move(bridge), std::move(words->read));
  co_return stream;
}

}  // namespace

LocalBackend::LocalBackend(std::string program)
    : program_(program.empty() ? (io::program_folder() / "dtagent").string() : std::move(program)) {
}

awaitable<Result<std::unique_ptr<io::ByteStream>>> LocalBackend::open(
    Host, std::vector<std::string> argv) {
  return open_bridge(program_, std::move(argv));
}

}  // namespace dt::launcher
