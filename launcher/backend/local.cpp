#include "launcher/backend/local.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/fd.h"
#include "io/process_tree.h"

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
  const auto reap = [bridge](const boost::system::error_code&) {
    int status = 0;
    if (::waitpid(bridge->pid, &status, WNOHANG) == bridge->pid) bridge->status = status;
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
Result<pid_t> spawn(const std::string& program, const std::vector<std::string>& words, int stream,
                    int errors) {
  std::vector<char*> argv;
  for (const auto& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, stream, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, stream, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors, STDERR_FILENO);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  pid_t pid = 0;
  const io::RestoredDescriptorLimit restored;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return tl::unexpected(errno_error(error, "run " + program));
  return pid;
}

std::string sibling_agent() {
  std::error_code ec;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", ec);
  return (self.parent_path() / "dtagent").string();
}

awaitable<Result<std::unique_ptr<io::ByteStream>>> open_bridge(std::string program,
                                                               std::vector<std::string> argv) {
  const auto executor = co_await asio::this_coro::executor;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    co_return tl::unexpected(errno_error(errno, "make a socket pair"));
  io::Fd ours(ends[0]);
  const io::Fd theirs(ends[1]);
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) co_return tl::unexpected(errno_error(errno, "make a pipe"));
  io::Fd words(pipe[0]);
  const io::Fd errors(pipe[1]);
  ::fcntl(words.get(), F_SETFL, O_NONBLOCK);

  const auto pid = spawn(program, argv, theirs.get(), errors.get());
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
  io::UnixSocket socket(executor, unix_domain, ours.release());
  auto carried = io::unix_stream(std::move(socket));
  std::unique_ptr<io::ByteStream> stream =
      std::make_unique<LocalStream>(std::move(carried), std::move(bridge), std::move(words));
  co_return stream;
}

}  // namespace

LocalBackend::LocalBackend(std::string program)
    : program_(program.empty() ? sibling_agent() : std::move(program)) {}

awaitable<Result<std::unique_ptr<io::ByteStream>>> LocalBackend::open(Host, AgentCommand command) {
  return open_bridge(program_, std::move(command.argv));
}

awaitable<Result<std::string>> LocalBackend::address(Host) { co_return std::string("127.0.0.1"); }

}  // namespace dt::launcher
