#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <fstream>

#include "io/descriptor_limit.h"
#include "io/process_tree.h"
#include "launcher/agent/internal.h"
#include "launcher/bundle_use.h"
#include "launcher/prune.h"

namespace dt::launcher {
namespace {

using io::tok;
using namespace std::chrono_literals;

/// Beyond its grace, what a shutdown waits for before it leaves the rest to the guard.
constexpr auto kShutdownSlack = 5s;
constexpr std::uint32_t kTermSignalGrace_ms = 5000;
constexpr auto kHousekeeping = 250ms;
constexpr auto kGuardRetry = 1s;

/// Nothing of whoever started us stays open, least of all an ssh channel's pipes.
void leave_the_caller() {
  ::syscall(SYS_close_range, static_cast<unsigned>(kDaemonLockFd) + 1, ~0U, 0U);
  if (::chdir("/") != 0) ::_exit(1);
  ::fcntl(kDaemonLockFd, F_SETFD, FD_CLOEXEC);
  ::signal(SIGHUP, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "dtagent");  // it was run as /proc/self/exe
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  DT_CHECK(::getrandom(&number, sizeof number, 0) == sizeof number, "no random numbers");
  return number;
}

}  // namespace

Agent::Agent(asio::io_context& context, AgentOptions options, AgentFiles files, GuardPlan plan,
             Guard guard, std::uint64_t incarnation, Inherited inherited)
    : executor_(context.get_executor()),
      options_(std::move(options)),
      files_(std::move(files)),
      plan_(std::move(plan)),
      guard_(std::move(guard)),
      incarnation_(incarnation),
      inherited_(inherited),
      boot_id_(first_line("/proc/sys/kernel/random/boot_id")),
      log_(STDERR_FILENO),
      acceptor_(context),
      tasks_(executor_),
      gpus_(executor_, GpuWatch::Options()),
      pump_wake_(executor_, asio::steady_timer::time_point::max()),
      stop_wake_(executor_, asio::steady_timer::time_point::max()) {}

awaitable<void> Agent::run() {
  tasks_.spawn(accept_all());
  tasks_.spawn(pump());
  tasks_.spawn(housekeeping());
  tasks_.spawn(tell_usage());
  tasks_.spawn(watch_guard());
  tasks_.spawn(watch_signals());
  tasks_.spawn(gpus_.run());
  tasks_.spawn(keep_bundle_in_use());
  tasks_.spawn(live_and_end());
  // What none of them can handle (no memory) ends them all: the guard takes over from there.
  co_await tasks_.join();
}

awaitable<void> Agent::live_and_end() {
  while (!stop_requested_) co_await stop_wake_.async_wait(tok);
  co_await stop_all();
  gpus_.stop();
  co_await sweep_all();
  // Whoever is attached hears the last of it; nobody new can come.
  ::unlink(files_.socket.c_str());
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  const auto deadline = Clock::now() + kFarewellDeadline;
  const auto unsaid = [](const auto& one) {
    return !one.second->spool.empty() || !one.second->exit_told;
  };
  while (link_ && Clock::now() < deadline &&
         (link_->queued_bytes() > 0 || std::any_of(processes_.begin(), processes_.end(), unsaid)))
    co_await io::sleep_for(2ms);
  ::unlink(files_.log.c_str());
  if (link_) link_->close();
  tasks_.cancel();
}

awaitable<void> Agent::housekeeping() {
  for (;;) {
    co_await io::sleep_for(link_ ? beat_ : Duration(kHousekeeping));
    if (link_) {
      Beat beat;
      beat.count = ++beats_;
      tell(beat);
    }
    if (link_ && kept_out_ != kept_out_told_) tell(kept_out_told_ = kept_out_);
    if (link_) {
      if (auto health = gpu_health(); health != gpu_health_told_)
        tell(gpu_health_told_ = std::move(health));
    }
    check_loneliness();
    reap_adopted();
  }
}

void Agent::check_loneliness() {
  if (link_ && keeps_alive_ && Clock::now() - heard_at_ > orphan_timeout_) {
    link_->close();
    link_.reset();
    alone_since_ = heard_at_;
  }
  if (link_ || stop_requested_) return;
  const Duration limit = was_attached_ ? orphan_timeout_ : options_.lonely_timeout;
  if (Clock::now() - alone_since_ < limit) return;
  request_stop(kTermSignalGrace_ms, fmt::format("no supervisor for {:.1f} s", seconds(limit)));
}

void Agent::reap_adopted() {
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    if (info.si_pid == guard_.pid()) return;  // watch_guard takes it
    if (info.si_pid == gpus_.pid()) return;   // gpus_ takes it
    for (const auto& [id, process] : processes_)
      if (process->pid == info.si_pid && !process->reaped) return;  // live() takes it
    ::waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

awaitable<void> Agent::watch_guard() {
  for (;;) {
    asio::posix::stream_descriptor watched(executor_, guard_.take_pidfd().release());
    auto [ec] = co_await watched.async_wait(asio::posix::stream_descriptor::wait_read, tok);
    if (ec) co_return;
    ::waitpid(guard_.pid(), nullptr, WNOHANG);  // a replacement was our child
    auto guard = fork_new_guard(plan_);
    if (!guard) log_.error("no guard, trying again: {}", guard.error().message);
    while (!guard) {
      co_await io::sleep_for(kGuardRetry);
      guard = fork_new_guard(plan_);
    }
    guard_ = std::move(*guard);
    for (const auto& [id, process] : processes_)
      if (process->pid != 0 && !process->reaped) guard_.group_started(process->pid);
    log_.warn("the guard was gone; process {} guards now", guard_.pid());
  }
}

awaitable<void> Agent::watch_signals() {
  asio::signal_set signals(executor_, SIGTERM, SIGINT);
  for (;;) {
    auto [ec, number] = co_await signals.async_wait(tok);
    if (ec) co_return;
    request_stop(kTermSignalGrace_ms, fmt::format("signal {}", number));
  }
}

void Agent::request_stop(std::uint32_t grace_ms, std::string why) {
  if (!why.empty()) log_.warn("stopping everything: {}", why);
  if (stop_requested_) grace_ms = std::min(grace_ms, stop_grace_ms_);
  stop_requested_ = true;
  stop_grace_ms_ = grace_ms;
  for (auto& [id, process] : processes_) stop(process, grace_ms);
  stop_wake_.cancel();
}

awaitable<void> Agent::stop_all() {
  const auto began = Clock::now();
  for (;;) {
    const bool ended = std::all_of(processes_.begin(), processes_.end(),
                                   [](const auto& one) { return one.second->exit.has_value(); });
    const auto deadline = began + std::chrono::milliseconds(stop_grace_ms_) + kShutdownSlack;
    if (ended || Clock::now() > deadline) co_return;
    stop_wake_.expires_at(deadline);
    co_await stop_wake_.async_wait(tok);
  }
}

awaitable<void> Agent::sweep_all() {
  const auto deadline = Clock::now() + kSweepDeadline;
  while (Clock::now() < deadline) {
    auto left = descendants(::getpid(), {guard_.pid()});
    for (auto& one : marked_processes(plan_.mark)) left.push_back(std::move(one));
    if (left.empty()) break;
    for (const auto& one : left) signal_pidfd(one, SIGKILL);
    co_await io::sleep_for(5ms);
    reap_adopted();
  }
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int agent_main(const AgentOptions& options) {
  io::FdLog log(STDERR_FILENO);
  auto files = agent_files(options.job, options.host);
  if (!files) {
    log.error("{}", files.error().message);
    return 1;
  }
  leave_the_caller();
  Inherited inherited;
  inherited.umask = ::umask(077);
  inherited.descriptor_limit = io::raise_descriptor_limit();
  const std::uint64_t incarnation = random_number();
  GuardPlan plan;
  plan.mark = mark_of(options.job, options.host) + fmt::format("{:016x}", incarnation);
  plan.files = {files->socket, files->lock};
  plan.log_file = files->log;
  plan.folder = files->folder;
  plan.lock_fd = kDaemonLockFd;
  auto guard = fork_under_guard(plan);
  if (!guard) {
    log.error("{}", guard.error().message);
    return 1;
  }
  // What an agent and a guard that were killed together have left, who knows how long ago. With our
  // lock held nobody else has processes of this job here.
  const std::string every = mark_of(options.job, options.host);
  if (const std::size_t left = options.is_first ? 0 : sweep_marked(every, kSweepDeadline))
    log.warn("{} processes of an earlier agent cannot be killed", left);
  // Orphans of our processes come to us while we live, and to the guard after that.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);

  asio::io_context context(1);
  Agent agent(context, options, *files, plan, std::move(*guard), incarnation, inherited);
  if (auto listening = agent.listen(); !listening) {
    log.error("{}", listening.error().message);
    return 1;
  }
  // Sockets and logs of earlier jobs on this host. Their state is the master's: a home folder may
  // be shared with it.
  prune_jobs(files->folder.substr(0, files->folder.rfind('/')), std::chrono::system_clock::now());
  std::exception_ptr failure;
  const auto done = [&failure](std::exception_ptr error) { failure = error; };
  asio::co_spawn(context, agent.run(), done);
  context.run();
  if (!failure) return 0;
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& e) {
    log.error("{}", e.what());
  }
  return 1;
}

}  // namespace dt::launcher
