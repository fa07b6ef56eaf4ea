#include "launcher/backend/child_stream.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "io/descriptor_limit.h"
#include "io/fd.h"
#include "io/notice_signals.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "launcher/backend/stderr_text.h"

namespace dt::launcher {
namespace {

namespace asio = boost::asio;
using io::awaitable;
using io::tok;

/// From the end of its output to the end of the program.
constexpr auto kExitDeadline = std::chrono::seconds(5);
/// From the end of its input to its being killed.
constexpr auto kLetGo = std::chrono::seconds(2);

/// The program, beyond the life of its stream: until it has ended and was reaped.
struct Program {
  Program(const asio::any_io_executor& executor, pid_t child, io::Fd handle, io::Fd words)
      : pid(child),
        pidfd(executor, handle.release()),
        errors(executor, words.release()),
        ended(executor, io::kNever),
        last_call(executor) {}
  pid_t pid;
  asio::posix::stream_descriptor pidfd;
  asio::posix::stream_descriptor errors;
  std::array<char, 4096> piece{};
  StderrText said;
  std::optional<int> status;
  asio::steady_timer ended;
  asio::steady_timer last_call;
};
using ProgramPtr = std::shared_ptr<Program>;

void keep_words(Program& program, std::size_t size) {
  program.said.feed({program.piece.data(), size});
}

void read_errors(const ProgramPtr& program) {
  const auto keep = [program](const boost::system::error_code& ec, std::size_t size) {
    if (ec) return;
    keep_words(*program, size);
    read_errors(program);
  };
  program->errors.async_read_some(asio::buffer(program->piece), keep);
}

/// What the program said last may lie in the pipe still.
void read_last_errors(Program& program) {
  for (;;) {
    const ssize_t n =
        ::read(program.errors.native_handle(), program.piece.data(), program.piece.size());
    if (n <= 0) return;
    keep_words(program, static_cast<std::size_t>(n));
  }
}

void reap_when_ended(const ProgramPtr& program) {
  const auto reap = [program](const boost::system::error_code& ec) {
    int status = 0;
    const pid_t ended = ::waitpid(program->pid, &status, WNOHANG);
    if (ended == 0 && !ec) return reap_when_ended(program);  // woken for nothing
    boost::system::error_code ignored;
    program->errors.cancel(ignored);
    read_last_errors(*program);
    program->errors.close(ignored);  // processes that it left behind may hold the other end
    program->status = ended == program->pid ? status : W_EXITCODE(EXIT_FAILURE, 0);
    program->ended.cancel();
    program->last_call.cancel();
  };
  program->pidfd.async_wait(asio::posix::stream_descriptor::wait_read, reap);
}

/// Its stdin has ended.
void let_go(const ProgramPtr& program) {
  if (program->status) return;
  program->last_call.expires_after(kLetGo);
  program->last_call.async_wait([program](const boost::system::error_code&) {
    if (!program->status) ::kill(-program->pid, SIGKILL);
  });
}

class ChildStream final : public ExecStream {
 public:
  ChildStream(io::UnixSocket socket, ProgramPtr program)
      : socket_(socket.native_handle()),
        stream_(io::unix_stream(std::move(socket))),
        program_(std::move(program)) {}
  ~ChildStream() override { close(); }

  awaitable<Result<std::size_t>> read(std::span<char> into) override {
    auto n = co_await stream_->read(into);
    if (!n || *n > 0) co_return n;
    if (!program_->status) {
      program_->ended.expires_after(kExitDeadline);
      co_await program_->ended.async_wait(tok);
    }
    co_return n;
  }
  awaitable<Result<void>> write(std::string_view bytes) override { return stream_->write(bytes); }
  void close() override {
    if (is_closed_) return;
    is_closed_ = true;
    program_->said.close();
    stream_->close();
    let_go(program_);
  }
  void finish_writing() override {
    if (!is_closed_) ::shutdown(socket_, SHUT_WR);
  }
  [[nodiscard]] int exit_code() const override {
    return program_->status ? io::exit_status(*program_->status).shell_code() : -1;
  }
  [[nodiscard]] Error no_exit_code() const override {
    return {ErrorKind::kUnavailable, "its output has ended, and the program has not"};
  }
  [[nodiscard]] std::string stderr_tail() const override { return program_->said.tail(); }
  void on_stderr(std::function<void(std::string_view)> take) override {
    if (!is_closed_) program_->said.on_text(std::move(take));
  }
  void kill_children() override {
    if (program_->status) return;
    for (const io::Fd& one : io::descendants(program_->pid)) io::signal_pidfd(one, SIGKILL);
  }

 private:
  int socket_;
  io::StreamPtr stream_;
  ProgramPtr program_;
  bool is_closed_ = false;
};

struct Ends {
  int stream;
  int errors;
  int exec_result;
};

/// Between fork and exec: nothing here takes memory or a lock.
[[noreturn]] void become(pid_t parent, bool dies_with_it, Ends ends, const char* path,
                         char* const* argv, char* const* environment) {
  ::setsid();
  if (dies_with_it) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it died before the line above
  }
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  if (io::is_in_sge_job()) io::ignore_notices();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // All three are above 2: the parent has its own stdin, stdout and stderr.
  if (::dup2(ends.stream, STDIN_FILENO) < 0 || ::dup2(ends.stream, STDOUT_FILENO) < 0 ||
      ::dup2(ends.errors, STDERR_FILENO) < 0)
    ::_exit(127);
  ::syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  ::execvpe(path, argv, environment);
  const int number = errno;
  [[maybe_unused]] const ssize_t n = ::write(ends.exec_result, &number, sizeof number);
  ::_exit(127);
}

/// The child's pid once it runs the program; an errno's error if it cannot.
Result<pid_t> run(const ChildProgram& program, const io::Fd& stream, const io::Fd& errors) {
  auto result = io::make_pipe();
  if (!result) return tl::unexpected(result.error());
  const std::string path = program.path.empty() ? program.argv.front() : program.path;
  const auto argv = io::pointers(program.argv);
  const auto environment = io::environment_of(program.is_without, program.with);
  const Ends ends{stream.get(), errors.get(), result->write.get()};
  const pid_t parent = ::getpid();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  // No handler of ours may run in the child.
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  pid_t pid = 0;
  {
    const io::RestoredDescriptorLimit restored;
    pid = ::fork();
    if (pid == 0)
      become(parent, program.dies_with_us, ends, path.c_str(), argv.data(), environment.data());
  }
  const int fork_error = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return tl::unexpected(errno_error(fork_error, "start " + path));
  result->write.reset();
  int number = 0;
  ssize_t n = 0;
  while ((n = ::read(result->read.get(), &number, sizeof number)) < 0 && errno == EINTR) {
  }
  if (n == 0) return pid;
  ::waitpid(pid, nullptr, 0);
  if (number == ENOENT)
    return fail(ErrorKind::kInvalid, "{} is not installed here, or not in PATH", path);
  return tl::unexpected(errno_error(number, "start " + path));
}

}  // namespace

Result<ExecStreamPtr> child_stream(asio::any_io_executor executor, const ChildProgram& program) {
  auto sockets = io::make_socket_pair();
  if (!sockets) return tl::unexpected(sockets.error());
  auto words = io::make_pipe();
  if (!words) return tl::unexpected(words.error());
  ::fcntl(words->read.get(), F_SETFL, O_NONBLOCK);
  const auto pid = run(program, sockets->theirs, words->write);
  if (!pid) return tl::unexpected(pid.error());
  io::Fd handle = io::open_pidfd(*pid);
  if (!handle) {
    const int number = errno;
    ::kill(*pid, SIGKILL);
    ::waitpid(*pid, nullptr, 0);
    return tl::unexpected(errno_error(number, "watch " + program.argv[0] + " (pidfd_open)"));
  }
  auto running =
      std::make_shared<Program>(executor, *pid, std::move(handle), std::move(words->read));
  reap_when_ended(running);
  read_errors(running);
  const asio::local::stream_protocol unix_domain;
  io::UnixSocket socket(executor, unix_domain, sockets->ours.release());
  return std::make_unique<ChildStream>(std::move(socket), std::move(running));
}

}  // namespace dt::launcher
