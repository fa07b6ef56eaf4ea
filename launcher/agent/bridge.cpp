#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <future>
#include <thread>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/fd.h"
#include "io/last_words.h"
#include "io/notice_signals.h"
#include "io/process_tree.h"
#include "io/read_file.h"
#include "io/subprocess.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/carry.h"
#include "launcher/agent/programs.h"
#include "launcher/agent/signals.h"
#include "launcher/bundle_use.h"

namespace dt::launcher {
namespace {

using Clock = std::chrono::steady_clock;
/// An earlier agent's guard may still be ending processes: a second at most, more on a loaded host.
constexpr auto kStartDeadline = std::chrono::seconds(20);
constexpr auto kRetry = std::chrono::milliseconds(10);
/// For a guard to end. Only processes that the kernel cannot end keep it longer.
constexpr auto kGuardDeadline = std::chrono::seconds(5);
constexpr int kExitNoAgent = 3;
/// For the agent's last words, where nobody may read them any more.
constexpr auto kLastWords = std::chrono::seconds(1);

[[nodiscard]] bool takes_notices(const AgentOptions& options) {
  return options.notice_grace > Duration{} && (io::is_in_allocation() || io::is_in_pod());
}

/// Starts `dtagent --daemon` with the lock as descriptor kDaemonLockFd.
Result<pid_t> start_daemon(const AgentOptions& options, const AgentFiles& files, int lock) {
  const std::string lonely = fmt::format("{}", seconds(options.lonely_timeout));
  std::vector<std::string> words = {"dtagent",          "--daemon", "--job",
                                    options.job,        "--host",   options.host,
                                    "--lonely-timeout", lonely};
  if (options.is_first) words.emplace_back("--first");
  if (takes_notices(options)) {
    words.emplace_back("--notice-grace");
    words.push_back(fmt::format("{}", seconds(options.notice_grace)));
  }
  const io::Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const int append = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_NOFOLLOW | O_CLOEXEC;
  const io::Fd log(::open(files.log.c_str(), append, 0600));
  if (!null || !log) return tl::unexpected(errno_error(errno, "open " + files.log));
  static_assert(kDaemonLockFd == 3);
  return io::spawn("/proc/self/exe", words, {null.get(), null.get(), log.get(), lock},
                   io::ProcessGroup::kOwnSession);
}

std::string last_words(const std::string& log) {
  const std::string line = io::last_line(io::end_of_file(log));
  return line.empty() ? "no reason given" : line;
}

/// Keeps an agent from being started while what an earlier one left behind is killed.
class StartLock {
 public:
  explicit StartLock(const AgentFiles& files) : files_(files) {
    if (!make_agent_folder(files_)) return;  // then none can be started
    if (auto lock = take_agent_lock(files_.lock); lock && *lock) lock_ = std::move(**lock);
  }
  ~StartLock() {
    if (lock_) ::unlink(files_.lock.c_str());
    ::rmdir(files_.folder.c_str());  // an agent's files keep it
  }
  StartLock(const StartLock&) = delete;
  StartLock& operator=(const StartLock&) = delete;

 private:
  const AgentFiles& files_;
  io::Fd lock_;
};

/// A connection to the agent.
struct Attached {
  io::Fd fd;
  bool has_started = false;  ///< This process has started the agent.
};

/// kUnavailable: neither an agent nor its guard is there, and what they left behind was killed;
/// kTimeout: one is there and cannot be reached, or what it left behind cannot be killed.
Result<Attached> connect_or_kill_rest(const BridgeOptions& bridge, const AgentFiles& own,
                                      const std::vector<AgentFiles>& all) {
  const AgentOptions& options = bridge.agent;
  const auto deadline = Clock::now() + kGuardDeadline;
  for (;;) {
    if (auto fd = connect_to_agent(all)) return Attached{std::move(*fd), false};
    if (!is_any_held(all)) break;
    if (Clock::now() > deadline)
      return fail(ErrorKind::kTimeout,
                  "an agent of job {} on host {} (or its guard) lives, and cannot be reached",
                  options.job, options.host);
    std::this_thread::sleep_for(kRetry);  // tidy: allow (lock and socket are another process's)
  }
  const StartLock lock(own);
  if (bridge.takes_over)
    if (auto noted = note_take_over(own, bridge.term); !noted) return tl::unexpected(noted.error());
  if (const std::size_t left =
          io::kill_marked(io::mark_of(options.job, options.host), io::kKillDeadline))
    return fail(ErrorKind::kTimeout,
                "{} processes that an earlier agent of job {} left on host {} cannot be killed",
                left, options.job, options.host);
  return fail(ErrorKind::kUnavailable, "no agent of job {} runs on host {}", options.job,
              options.host);
}

Result<Attached> start_and_connect(const BridgeOptions& bridge, const AgentFiles& files,
                                   const std::vector<AgentFiles>& all) {
  const AgentOptions& options = bridge.agent;
  const auto deadline = Clock::now() + kStartDeadline;
  pid_t daemon = 0;
  while (Clock::now() < deadline) {
    if (auto fd = connect_to_agent(all)) return Attached{std::move(*fd), daemon != 0};
    if (daemon != 0 && ::waitpid(daemon, nullptr, WNOHANG) == daemon)
      return fail(ErrorKind::kUnavailable, "the agent on host {} ended at once: {}", options.host,
                  last_words(files.log));
    if (daemon == 0 && !is_any_held(all)) {
      if (auto made = make_agent_folder(files); !made) return tl::unexpected(made.error());
      auto lock = take_agent_lock(files.lock);
      if (!lock) return tl::unexpected(lock.error());
      if (*lock) {
        // Who takes over notes it while it holds the lock.
        if (const Term newer = taken_over_by(all); newer > bridge.term) {
          ::unlink(files.lock.c_str());
          return fail(ErrorKind::kDenied, "a supervisor of term {} has taken job {} over", newer,
                      options.job);
        }
        auto pid = start_daemon(options, files, (*lock)->get());
        if (!pid) return tl::unexpected(pid.error());
        daemon = *pid;
      }
    }
    std::this_thread::sleep_for(kRetry);  // tidy: allow (lock and socket are another process's)
  }
  return fail(ErrorKind::kTimeout,
              "the agent on host {} did not come up within {} s: processes of an earlier one may "
              "not have ended (see {})",
              options.host, kStartDeadline.count(), files.log);
}

/// Blocks until no process holds the lock.
void wait_for_lock(const std::string& lock) {
  const io::Fd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  while (fd && ::flock(fd.get(), LOCK_SH) != 0 && errno == EINTR) {
  }
}

/// Carries bytes over `agent` until that ends, and ends this process once neither the agent nor its
/// guard, who hold `lock`, lives. Signals of a scheduler go to the agent, as notices if it takes
/// these.
[[noreturn]] void stay_with_agent(io::Fd agent, const std::string& lock, bool lines,
                                  bool has_notices) {
  hand_signals_on(agent, has_notices);
  const int fd = agent.get();
  std::thread([fd, lines] {
    carry_in(fd, lines);
    ::shutdown(fd, SHUT_RDWR);  // the supervisor's link is over, the agent's life is not
  }).detach();
  std::promise<void> carried;
  const std::future<void> has_carried = carried.get_future();
  std::thread([fd, lines, promise = std::move(carried)]() mutable {
    carry_out(fd, lines);
    promise.set_value();
  }).detach();
  wait_for_lock(lock);
  has_carried.wait_for(kLastWords);
  ::_exit(0);  // the threads may be blocked for ever
}

}  // namespace

int bridge_main(const BridgeOptions& options) {
  if (options.aside) stand_aside();
  touch_bundle();
  const auto own = agent_files(options.agent.job, options.agent.host);
  std::vector<AgentFiles> all;  // wherever it was started
  if (own) all = agent_files_anywhere(options.agent.job, options.agent.host, *own, options.socket);
  Result<Attached> link = !own            ? tl::unexpected(own.error())
                          : options.start ? start_and_connect(options, *own, all)
                                          : connect_or_kill_rest(options, *own, all);
  if (!link) {
    fmt::print(stderr, "dtagent: {}\n", link.error().message);
    if (own && options.start && link.error().kind == ErrorKind::kDenied)
      if (const Term newer = taken_over_by(all); newer > options.term)
        write_out(wire::frame(Refused{link.error().message, newer}), options.lines);
    if (!own || options.start || link.error().kind != ErrorKind::kUnavailable) return 1;
    write_out(wire::frame(NoAgent{}), options.lines);
    return kExitNoAgent;
  }
  ::signal(SIGPIPE, SIG_IGN);
  const bool has_notices = takes_notices(options.agent);
  if (options.stay && link->has_started)
    stay_with_agent(std::move(link->fd), own->lock, options.lines, has_notices);
  if (has_notices) hand_signals_on(link->fd, has_notices);
  // The agent gets all that the supervisor has sent, also after the supervisor has closed.
  std::thread([fd = link->fd.get(), lines = options.lines] {
    carry_in(fd, lines);
    ::_exit(0);
  }).detach();
  carry_out(link->fd.get(), options.lines);
  ::_exit(0);
}

}  // namespace dt::launcher
