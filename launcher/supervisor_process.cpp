#include "launcher/supervisor_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <cerrno>

#include "core/base/number.h"
#include "core/protocol/exit_code.h"
#include "io/asio.h"
#include "io/descriptor_limit.h"
#include "io/job/control_protocol.h"
#include "io/last_words.h"
#include "io/process_end.h"
#include "io/process_tree.h"
#include "io/read_file.h"
#include "io/subprocess.h"
#include "io/within.h"
#include "launcher/job_programs.h"

namespace dt::launcher {
namespace {

using io::tok;

/// A supervisor that replays a long journal on a slow disk still gets ready in this time.
constexpr auto kReadyLimit = std::chrono::seconds(60);
constexpr auto kEndLimit = std::chrono::seconds(5);
constexpr int kReadyFd = 3;

Result<pid_t> start_with_first_limit(const std::vector<std::string>& argv,
                                     const std::vector<int>& files) {
  const io::RestoredDescriptorLimit restored;
  return io::spawn(argv.front(), argv, files, io::ProcessGroup::kOwnSession);
}

/// The supervisor's report on the readiness pipe: its first line, or all until the pipe's end.
io::awaitable<Result<std::string>> read_line(io::Fd pipe) {
  boost::asio::posix::stream_descriptor stream(co_await boost::asio::this_coro::executor,
                                               pipe.release());
  std::string text;
  auto buffer = boost::asio::dynamic_buffer(text, 4096);
  co_await boost::asio::async_read_until(stream, buffer, '\n', tok);
  co_return text.substr(0, text.find('\n'));
}

io::awaitable<Result<void>> end_of(io::Fd pidfd) {
  boost::asio::posix::stream_descriptor process(co_await boost::asio::this_coro::executor,
                                                pidfd.release());
  co_await io::process_ended(process);
  co_return Result<void>();
}

/// "ERROR 68 a job is running here" -> its code and its sentence.
StartFailure refusal(std::string_view line) {
  line.remove_prefix(std::string_view("ERROR ").size());
  StartFailure failure;
  failure.exit_code = take_number<int>(line).value_or(failure.exit_code);
  while (line.starts_with(' ')) line.remove_prefix(1);
  failure.why = line;
  return failure;
}

tl::unexpected<StartFailure> cannot(const Error& error) {
  return tl::unexpected(StartFailure{kExitFailure, error.message, std::nullopt});
}

}  // namespace

std::string spec_file(const io::JobSpec& spec) { return spec.state_dir + "/spec.json"; }
std::string supervisor_log(const io::JobSpec& spec) { return spec.state_dir + "/supervisor.log"; }

io::awaitable<tl::expected<std::unique_ptr<SupervisorProcess>, StartFailure>>
SupervisorProcess::start(io::JobSpec spec, SupervisorStart how) {
  const std::string log_path = supervisor_log(spec);
  const io::Fd log(
      ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!log) co_return cannot(errno_error(errno, "open " + log_path));
  const io::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null) co_return cannot(errno_error(errno, "open /dev/null"));
  auto ready = io::make_pipe();
  if (!ready) co_return cannot(ready.error());

  const SupervisorProgram program = supervisor_program(spec);
  std::vector<std::string> words = {program.path, "--spec", spec_file(spec), "--ready-fd",
                                    std::to_string(kReadyFd)};
  if (how != SupervisorStart::kNew) words.emplace_back("--resume");
  const bool is_resumed = how != SupervisorStart::kNew && how != SupervisorStart::kRevive;
  if (is_resumed && !spec.detached) words.emplace_back("--owned");
  if (how == SupervisorStart::kAdopt) words.emplace_back("--adopt");
  if (how == SupervisorStart::kTakeOver) words.emplace_back("--take-over");
  if (::access(words[0].c_str(), X_OK) != 0)
    co_return cannot(errno_error(errno, words[0] + " belongs beside dtlaunch"));

  auto started =
      start_with_first_limit(words, {null.get(), log.get(), log.get(), ready->write.get()});
  if (!started) co_return cannot(started.error());
  const pid_t pid = *started;
  ready->write.reset();
  io::Fd pidfd = io::open_pidfd(pid);
  if (!pidfd) {
    const Error error = errno_error(errno, "watch the supervisor (pidfd_open)");
    ::kill(pid, SIGKILL);
    co_return cannot(error);
  }
  std::unique_ptr<SupervisorProcess> process(new SupervisorProcess(pid, std::move(pidfd)));

  auto said = co_await io::within(kReadyLimit, read_line(std::move(ready->read)),
                                  "waiting for the supervisor to get ready");
  if (!said) {
    // A slow start of its supervisor must not stop a job that runs. The journal survives a kill.
    ::kill(pid, how == SupervisorStart::kNew ? SIGTERM : SIGKILL);
    if (!co_await process->wait(kEndLimit)) {
      ::kill(pid, SIGKILL);
      co_await process->wait(kEndLimit);
    }
    co_return cannot({said.error().kind, said.error().message + "; see " + log_path});
  }
  constexpr std::string_view kReady = "READY ";
  if (said->starts_with("READY")) {
    // Supervisors of earlier versions do not say where they listen.
    process->socket_ = said->size() > kReady.size() ? said->substr(kReady.size()) : spec.socket;
    process->is_of_job_ = program.is_of_job;
    co_return std::move(process);
  }
  const auto status = co_await process->wait(kEndLimit);
  if (said->starts_with("ERROR ")) co_return tl::unexpected(refusal(*said));
  const std::string end = status ? to_string(*status) : "no word";
  const std::string last = io::last_line(io::end_of_file(log_path));
  StartFailure died;
  died.why = fmt::format("the supervisor ended at its start ({}){}{}; see {}", end,
                         last.empty() ? "" : ": ", last, log_path);
  if (status && status->signal != 0) died.killed = status;
  co_return tl::unexpected(std::move(died));
}

io::awaitable<std::optional<ExitStatus>> SupervisorProcess::wait(Duration limit) {
  if (ended_) co_return ended_;
  io::Fd copy(::fcntl(pidfd_.get(), F_DUPFD_CLOEXEC, 0));
  auto done = co_await io::within(limit, end_of(std::move(copy)), "the supervisor's end");
  if (!done) co_return std::nullopt;
  int raw = 0;
  ended_ = ::waitpid(pid_, &raw, WNOHANG) == pid_ ? io::exit_status(raw) : ExitStatus{};
  co_return ended_;
}

}  // namespace dt::launcher
