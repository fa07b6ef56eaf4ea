#include "launcher/agent/process.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "core/base/lookup.h"
#include "io/job/spec.h"
#include "io/process_end.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "launcher/agent/agent_environment.h"
#include "launcher/agent/child.h"
#include "launcher/agent/last_exception.h"
#include "launcher/bundle_use.h"
#include "launcher/environment.h"

namespace dt::launcher {
namespace {

namespace asio = io::asio;
using Clock = std::chrono::steady_clock;
using Descriptor = asio::posix::stream_descriptor;
using io::awaitable;
using io::tok;
using namespace std::chrono_literals;

/// Sent output kept per process, for a supervisor that did not receive it: more than is ever in
/// flight.
constexpr std::size_t kKeptOutput = std::size_t{4} << 20;
/// How long a process's pipes and connection may stay open after its end: another process may have
/// inherited them.
constexpr auto kDrainDeadline = 1s;

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  DT_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == std::ssize(bytes), "no random numbers");
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

/// The file of the package dtkv that came with this program; empty: there is none.
std::string python_package(const std::filesystem::path& own) {
  const std::filesystem::path installed = own / kPythonPackage;
  for (const auto& file : {own / installed.filename(), installed.lexically_normal()}) {
    std::error_code error;
    if (std::filesystem::exists(file, error)) return file.string();
  }
  return "";
}

/// With this program's folder last in PATH, where dtserver is, too, and its Python package first in
/// PYTHONPATH.
std::map<std::string, std::string> environment_of(const StartProcess& message) {
  auto environment = environment_with(message.env);
  std::string& path = environment.try_emplace("PATH", "/usr/local/bin:/usr/bin:/bin").first->second;
  if (const auto* first = find_in(environment, kFirstInPath)) path = *first + ":" + path;
  const auto own = io::program_folder();
  if (own.empty()) return environment;
  path += ":" + own.string();
  const bool is_unwanted = value_in(environment, "DT_NO_PYTHON") == "1";
  if (is_unwanted || environment.contains("DTKV_LIBRARY")) return environment;
  if (const std::string package = python_package(own); !package.empty()) {
    std::string& modules = environment["PYTHONPATH"];
    modules = modules.empty() ? package : package + ":" + modules;
  }
  return environment;
}

}  // namespace

ProcessOutput::ProcessOutput(const asio::any_io_executor& executor)
    : spool(kSpoolBytes, kKeptOutput),
      pipes{Descriptor(executor), Descriptor(executor)},
      room{asio::steady_timer(executor), asio::steady_timer(executor)} {}

void ProcessOutput::push(bool is_stderr, std::string_view bytes, OutputLoss why_lost) {
  constexpr std::size_t kMostErrors = std::size_t{4} << 10;
  spool.push(is_stderr, bytes, why_lost);
  if (!is_stderr) return;
  last_errors.append(bytes.substr(bytes.size() - std::min(bytes.size(), kMostErrors)));
  if (last_errors.size() > kMostErrors) last_errors.erase(0, last_errors.size() - kMostErrors);
}

void ProcessOutput::wake_readers() {
  for (auto& timer : room) timer.cancel();
}

Process::Process(const asio::any_io_executor& executor, ProcessId id)
    : output(executor),
      id_(id),
      token_(random_token()),
      pidfd_(executor),
      exec_result_(executor),
      streams_changed_(executor, io::kNever),
      kill_timer_(executor, io::kNever) {}

Result<void> Process::start(const StartProcess& message, const ProcessDefaults& defaults) {
  ChildSpec spec;
  spec.argv = message.argv;
  spec.environment = environment_of(message);
  spec.environment["DT_AGENT_SOCKET"] = defaults.socket;
  spec.environment["DT_TOKEN"] = token_;
  spec.environment["DT_MARK"] = defaults.mark.substr(defaults.mark.find('=') + 1);
  if (id_.role == Role::kWorker) {
    error_file_ = fmt::format("{}/error-{}.json", defaults.folder, id_.id);
    const auto [given, is_ours] =
        spec.environment.try_emplace("TORCHELASTIC_ERROR_FILE", error_file_);
    if (!is_ours) error_file_.clear();
  }
  spec.cwd = message.cwd;
  spec.home = io::home_dir();
  spec.umask = defaults.umask;
  spec.descriptor_limit = defaults.descriptor_limit;
  host_ = defaults.host;
  command_ = message.argv.empty() ? std::string() : message.argv[0];
  if (const auto* gpus = find_in(spec.environment, kVisibleGpus)) cuda_visible_devices_ = *gpus;
  auto child = start_child(spec);
  if (!child) return tl::unexpected(child.error().at("host " + host_));
  ports_ = message.ports;
  pid_ = child->pid;
  pidfd_.assign(child->pidfd.release());
  exec_result_.assign(child->exec_result.release());
  output.pipes[0].assign(child->out.release());
  output.pipes[1].assign(child->err.release());
  output.open_pipes = 2;
  return {};
}

void Process::fail_start(std::string why) {
  failure_ = std::move(why);
  exit_ = ExitStatus{126, 0};
}

awaitable<bool> Process::is_executed() {
  int number = 0;
  const auto buffer = asio::buffer(&number, sizeof number);
  auto [ec, n] = co_await exec_result_.async_read_some(buffer, tok);
  exec_result_.close();
  running_ = n != sizeof number;
  if (!running_) failure_ = explain_exec_failure(number, command_, host_);
  co_return running_;
}

awaitable<void> Process::end() { co_await io::process_ended(pidfd_); }

awaitable<std::size_t> Process::end_leftovers() {
  const auto deadline = Clock::now() + io::kKillDeadline;
  const std::string token = "DT_TOKEN=" + token_;
  for (;;) {
    ::kill(-pid_, SIGKILL);
    for (const auto& below : seen_below_) io::signal_pidfd(below, SIGKILL);
    const auto left = io::marked_descendants(::getpid(), token);
    if (left.empty()) co_return 0;
    for (const auto& one : left) io::signal_pidfd(one, SIGKILL);
    if (Clock::now() > deadline) co_return left.size();
    co_await io::sleep_for(5ms);  // tidy: allow (killed ones may have forked: only a look tells)
  }
}

ExitStatus Process::reap() {
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(pidfd_.native_handle());
  ::waitid(static_cast<idtype_t>(3) /* P_PIDFD */, pidfd, &info, WEXITED | WNOHANG);
  reaped_ = true;
  output.wake_readers();
  kill_timer_.cancel();
  ExitStatus status;
  if (info.si_code == CLD_EXITED)
    status.code = info.si_status;
  else
    status.signal = info.si_status;
  return status;
}

awaitable<void> Process::finish_streams() {
  const auto deadline = Clock::now() + kDrainDeadline;
  while ((output.open_pipes > 0 || mailbox.connection()) && Clock::now() < deadline) {
    streams_changed_.expires_at(deadline);
    co_await streams_changed_.async_wait(tok);
  }
  if (mailbox.connection()) mailbox.connection()->close();
  boost::system::error_code ignored;
  for (auto& pipe : output.pipes) pipe.close(ignored);
  // The readers end at their next step, and only then is the spool complete.
  while (output.open_pipes > 0) {
    streams_changed_.expires_at(io::kNever);
    co_await streams_changed_.async_wait(tok);
  }
}

std::string Process::take_error(ExitStatus status) {
  using nlohmann::json;
  std::string error = take_error_file();
  if (!error.empty() || id_.role != Role::kWorker || status.signal != 0 || status.code == 0)
    return error;
  const std::string line = last_exception(output.last_errors);
  return line.empty() ? line : json(line).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string Process::take_error_file() const {
  // What a mailbox and a frame hold easily; torch writes a few kilobytes.
  constexpr std::size_t kMost = std::size_t{256} << 10;
  if (error_file_.empty()) return {};
  const io::Fd file(::open(error_file_.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  if (!file) return {};
  ::unlink(error_file_.c_str());
  struct stat info {};
  if (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  std::string text(kMost, '\0');
  const ssize_t n = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return text;
}

void Process::finish(ExitStatus status) {
  exit_ = status;
  ended_at_ = Clock::now();
  mailbox.drop_waiting();
  seen_below_.clear();
}

void Process::stop(std::uint32_t grace_ms, io::TaskGroup& tasks) {
  if (reaped_ || exit_) return;
  if (pid_ == 0) return void(exit_ = ExitStatus{0, SIGTERM});  // it waits for its GPUs
  const auto kill_at = Clock::now() + std::chrono::milliseconds(grace_ms);
  kill_at_ = std::min(kill_at_, kill_at);
  kill_timer_.cancel();
  if (stopping_) return;
  stopping_ = true;
  if (grace_ms > 0) {
    seen_below_ = io::descendants(pid_);
    ::kill(-pid_, SIGTERM);
    ::kill(-pid_, SIGCONT);  // a stopped process has to run to end
  }
  tasks.spawn(kill_later(shared_from_this()));
}

awaitable<void> Process::kill_later(std::shared_ptr<Process> self) {
  while (!self->reaped_ && Clock::now() < self->kill_at_) {
    self->kill_timer_.expires_at(self->kill_at_);
    co_await self->kill_timer_.async_wait(tok);
  }
  if (self->reaped_) co_return;
  for (auto& below : io::descendants(self->pid_)) self->seen_below_.push_back(std::move(below));
  ::kill(-self->pid_, SIGKILL);
}

}  // namespace dt::launcher
