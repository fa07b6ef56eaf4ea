#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "io/job/spec.h"
#include "io/process_tree.h"
#include "io/subprocess.h"
#include "launcher/agent/child.h"
#include "launcher/agent/internal.h"

namespace dt::launcher {
namespace {

using io::tok;
using namespace std::chrono_literals;

/// A spool fuller than this share makes its process wait, as long as the supervisor takes output;
/// after this time without progress the oldest is dropped instead: output never stops training.
constexpr std::size_t kFullShare = 2;
constexpr auto kStalledLink = 500ms;
/// Sent output kept per process for a supervisor that did not get it: more than is ever on its way.
constexpr std::size_t kKeptOutput = std::size_t{4} << 20;
/// A process's pipes and connection after its end: a descriptor may have gone anywhere.
constexpr auto kDrainDeadline = 1s;

std::string random_hex(std::size_t bytes) {
  std::string raw(bytes, '\0');
  DT_CHECK(::getrandom(raw.data(), bytes, 0) == static_cast<ssize_t>(bytes), "no random numbers");
  std::string hex;
  for (const char c : raw) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return hex;
}

/// PATH as the process would have it, with this program's folder last: dtserver lies beside the
/// agent wherever that was copied to.
std::string path_with_own_folder(const std::vector<std::pair<std::string, std::string>>& env) {
  const char* inherited = std::getenv("PATH");
  std::string path = inherited ? inherited : "/usr/local/bin:/usr/bin:/bin";
  for (const auto& [name, value] : env)
    if (name == "PATH") path = value;
  const auto own = io::program_folder();
  return own.empty() ? path : path + ":" + own.string();
}

/// Of "NAME=value" entries.
std::optional<std::string> value_of(std::string_view name,
                                    const std::vector<std::string>& environment) {
  for (const std::string& entry : environment)
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=')
      return entry.substr(name.size() + 1);
  return std::nullopt;
}

}  // namespace

Process::Process(asio::any_io_executor executor, ProcessId process, std::size_t spool_bytes)
    : id(process),
      token(random_hex(16)),
      spool(spool_bytes, kKeptOutput),
      pidfd(executor),
      exec_result(executor),
      out(executor),
      err(executor),
      room{asio::steady_timer(executor), asio::steady_timer(executor)},
      changed(executor, asio::steady_timer::time_point::max()),
      kill_timer(executor, asio::steady_timer::time_point::max()) {}

Result<void> Agent::start(Process& process, const StartProcess& message) {
  auto overrides = message.env;
  overrides.emplace_back("DT_AGENT_SOCKET", files_.socket);
  overrides.emplace_back("DT_TOKEN", process.token);
  const std::size_t equals = plan_.mark.find('=');
  overrides.emplace_back(plan_.mark.substr(0, equals), plan_.mark.substr(equals + 1));
  overrides.emplace_back("PATH", path_with_own_folder(message.env));

  ChildSpec spec;
  spec.argv = message.argv;
  spec.environment = merge_environment(environ, overrides);
  spec.cwd = message.cwd;
  spec.home = io::home_dir();
  spec.umask = inherited_.umask;
  spec.descriptor_limit = inherited_.descriptor_limit;
  process.command = message.argv.empty() ? std::string() : message.argv[0];
  process.cuda_visible_devices = value_of("CUDA_VISIBLE_DEVICES", spec.environment);
  auto child = start_child(spec);
  if (!child) return tl::unexpected(child.error().at("host " + options_.host));
  process.ports = message.ports;
  ports_.give(process.ports);  // the child holds them until its exec
  process.pid = child->pid;
  guard_.group_started(child->pid);
  process.pidfd.assign(child->pidfd.release());
  process.exec_result.assign(child->exec_result.release());
  process.out.assign(child->out.release());
  process.err.assign(child->err.release());
  return {};
}

awaitable<void> Agent::live(ProcessPtr process) {
  process->open_pipes = 2;
  tasks_.spawn(drain(process, false));
  tasks_.spawn(drain(process, true));
  co_await wait_for_exec(process);
  co_await process->pidfd.async_wait(asio::posix::stream_descriptor::wait_read, tok);
  // Still a zombie: its number, which is its group's, cannot be given to anybody else yet.
  co_await end_leftovers(process);
  siginfo_t info{};
  const auto pidfd = static_cast<id_t>(process->pidfd.native_handle());
  ::waitid(static_cast<idtype_t>(3) /* P_PIDFD */, pidfd, &info, WEXITED | WNOHANG);
  process->reaped = true;
  for (auto& room : process->room) room.cancel();
  process->kill_timer.cancel();
  guard_.group_ended(process->pid);
  kill_anonymous();
  if (ports_.take_again(process->ports)) tell(place());
  co_await finish_streams(process);

  ExitStatus status;
  if (info.si_code == CLD_EXITED)
    status.code = info.si_status;
  else
    status.signal = info.si_status;
  process->exit = status;
  process->waiting.clear();
  process->seen_below.clear();
  pump_wake_.cancel();
  stop_wake_.cancel();
  reap_adopted();
}

awaitable<void> Agent::wait_for_exec(ProcessPtr process) {
  int number = 0;
  const auto buffer = asio::buffer(&number, sizeof number);
  auto [ec, n] = co_await process->exec_result.async_read_some(buffer, tok);
  process->exec_result.close();
  if (n == sizeof number) {
    process->failure = explain_exec_failure(number, process->command, options_.host);
    co_return;
  }
  process->running = true;
  ProcessStarted started;
  started.process = process->id;
  started.pid = process->pid;
  tell(started);
  pump_wake_.cancel();
}

awaitable<void> Agent::drain(ProcessPtr process, bool is_stderr) {
  auto& pipe = is_stderr ? process->err : process->out;
  std::string buffer(Spool::kPieceSize, '\0');
  for (;;) {
    auto [ec, n] = co_await pipe.async_read_some(asio::buffer(buffer), tok);
    if (ec) break;
    process->spool.push(is_stderr, std::string_view(buffer).substr(0, n));
    pump_wake_.cancel();
    co_await wait_for_room(process, is_stderr);
  }
  --process->open_pipes;
  process->changed.cancel();
}

awaitable<void> Agent::wait_for_room(ProcessPtr process, bool is_stderr) {
  const std::size_t enough = options_.spool_bytes / kFullShare;
  while (link_ && process->spool.bytes() > enough && !process->reaped &&
         Clock::now() < link_moved_ + kStalledLink) {
    asio::steady_timer& room = process->room[is_stderr];
    room.expires_at(link_moved_ + kStalledLink);
    co_await room.async_wait(tok);
  }
}

awaitable<void> Agent::end_leftovers(ProcessPtr process) {
  const auto deadline = Clock::now() + kSweepDeadline;
  const std::string token = "DT_TOKEN=" + process->token;
  for (;;) {
    ::kill(-process->pid, SIGKILL);
    for (const auto& below : process->seen_below) signal_pidfd(below, SIGKILL);
    const auto left = marked_processes(token);
    if (left.empty()) co_return;
    for (const auto& one : left) signal_pidfd(one, SIGKILL);
    if (Clock::now() > deadline) {
      log_.warn("{}: {} of its processes cannot be killed", to_string(process->id), left.size());
      co_return;
    }
    co_await io::sleep_for(5ms);
  }
}

void Agent::kill_anonymous() {
  for (const auto& [id, process] : processes_)
    if (process->pid != 0 && !process->reaped) return;
  for (const auto& one : descendants(::getpid(), {guard_.pid(), gpus_.pid()}))
    signal_pidfd(one, SIGKILL);
}

awaitable<void> Agent::finish_streams(ProcessPtr process) {
  const auto deadline = Clock::now() + kDrainDeadline;
  while ((process->open_pipes > 0 || process->connection) && Clock::now() < deadline) {
    process->changed.expires_at(deadline);
    co_await process->changed.async_wait(tok);
  }
  if (process->connection) process->connection->close();
  boost::system::error_code ignored;
  process->out.close(ignored);
  process->err.close(ignored);
  // The readers end at their next step, and only then is the spool complete.
  while (process->open_pipes > 0) {
    process->changed.expires_at(asio::steady_timer::time_point::max());
    co_await process->changed.async_wait(tok);
  }
}

void Agent::stop(const ProcessPtr& process, std::uint32_t grace_ms) {
  if (process->reaped || process->exit) return;
  const auto kill_at = Clock::now() + std::chrono::milliseconds(grace_ms);
  process->kill_at = std::min(process->kill_at, kill_at);
  process->kill_timer.cancel();
  if (process->stopping) return;
  process->stopping = true;
  if (grace_ms > 0) {
    process->seen_below = descendants(process->pid);
    ::kill(-process->pid, SIGTERM);
    ::kill(-process->pid, SIGCONT);  // a stopped process has to run to end
  }
  tasks_.spawn(kill_later(process));
}

awaitable<void> Agent::kill_later(ProcessPtr process) {
  while (!process->reaped && Clock::now() < process->kill_at) {
    process->kill_timer.expires_at(process->kill_at);
    co_await process->kill_timer.async_wait(tok);
  }
  if (!process->reaped) kill_now(*process);
}

void Agent::kill_now(Process& process) {
  for (auto& below : descendants(process.pid)) process.seen_below.push_back(std::move(below));
  ::kill(-process.pid, SIGKILL);
}

}  // namespace dt::launcher
