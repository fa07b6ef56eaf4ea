/// One process of the job on this host, from its start until its exit is acknowledged.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/fd.h"
#include "io/task_group.h"
#include "launcher/agent/mailbox.h"
#include "launcher/agent/spool.h"

namespace dt::launcher {

/// What an agent gives to each of its processes.
struct ProcessDefaults {
  std::string host;    ///< For messages.
  std::string socket;  ///< The agent's.
  std::string folder;  ///< For error files.
  std::string mark;    ///< "DT_MARK=...", see fork_under_guard().
  /// The agent's own as it was started.
  mode_t umask = 022;
  rlimit descriptor_limit{};
};

/// Output of a process that waits for the supervisor.
inline constexpr std::size_t kSpoolBytes = std::size_t{8} << 20;

/// stdout (0) and stderr (1), from the pipes to the spool.
struct ProcessOutput {
  explicit ProcessOutput(const io::asio::any_io_executor& executor);
  void push(bool is_stderr, std::string_view bytes, OutputLoss why_lost);
  /// Wakes readers that wait for room in the spool.
  void wake_readers();

  Spool spool;
  std::string last_errors;  ///< The end of stderr.
  std::array<io::asio::posix::stream_descriptor, 2> pipes;
  std::array<io::asio::steady_timer, 2> room;
  int open_pipes = 0;  ///< That are still read.
  /// Since when its readers have to wait again and again; nothing: they do not.
  std::optional<std::chrono::steady_clock::time_point> held_since;
  bool comes_after_exit = false;  ///< The exit was sent before all of it, and it has not ended.
};

class Process : public std::enable_shared_from_this<Process> {
 public:
  Process(const io::asio::any_io_executor& executor, ProcessId id);

  /// Forks. Afterwards wait, in this order, for is_executed(), end(), end_leftovers(), reap() and
  /// finish_streams().
  [[nodiscard]] Result<void> start(const StartProcess& message, const ProcessDefaults& defaults);
  /// It could not be started: it has ended.
  void fail_start(std::string why);
  /// Waits for its exec. False: that failed, see failure().
  io::awaitable<bool> is_executed();
  /// Waits for its end. It is a zombie then: its pid cannot be given to another process yet.
  io::awaitable<void> end();
  /// Kills what it left behind; how many could not be.
  io::awaitable<std::size_t> end_leftovers();
  [[nodiscard]] ExitStatus reap();
  /// Waits until its output and its last messages are complete, for a bounded time.
  io::awaitable<void> finish_streams();
  /// What a worker wrote to its error file, which is removed; of one that wrote none and exited
  /// with `status`, not 0, the exception that it printed. JSON; empty: nothing. Call it after
  /// finish_streams().
  [[nodiscard]] std::string take_error(ExitStatus status);
  void finish(ExitStatus status);

  /// TERM, and KILL once the grace is over; a shorter grace replaces a longer one. One that has not
  /// begun yet has ended then, and is not to be started.
  void stop(std::uint32_t grace_ms, io::TaskGroup& tasks);

  [[nodiscard]] ProcessId id() const { return id_; }
  [[nodiscard]] const std::string& token() const { return token_; }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] Port ports() const { return ports_; }
  /// The value it was started with.
  [[nodiscard]] const std::optional<std::string>& cuda_visible_devices() const {
    return cuda_visible_devices_;
  }
  /// Its exec went well.
  [[nodiscard]] bool is_running() const { return running_; }
  /// It was started, and its pid is still its own.
  [[nodiscard]] bool has_pid() const { return pid_ != 0 && !reaped_; }
  [[nodiscard]] bool is_reaped() const { return reaped_; }
  /// Why it could not be started; empty: it was.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  /// Set when all of it has ended and its pipes are drained.
  [[nodiscard]] const std::optional<ExitStatus>& exit() const { return exit_; }
  [[nodiscard]] std::chrono::steady_clock::time_point ended_at() const { return ended_at_; }
  /// One of its streams has ended.
  void stream_ended() { streams_changed_.cancel(); }

  ProcessOutput output;
  Mailbox mailbox;
  bool exit_sent = false;  ///< To the present supervisor.

 private:
  static io::awaitable<void> kill_later(std::shared_ptr<Process> self);
  [[nodiscard]] std::string take_error_file() const;

  ProcessId id_;
  std::string command_;
  std::string token_;  ///< A secret of the process and the agent.
  std::string host_;
  std::string error_file_;  ///< TORCHELASTIC_ERROR_FILE; empty: it has none of ours.
  std::optional<std::string> cuda_visible_devices_;
  Port ports_ = Port::kNone;
  pid_t pid_ = 0;
  io::asio::posix::stream_descriptor pidfd_;
  io::asio::posix::stream_descriptor exec_result_;
  io::asio::steady_timer streams_changed_;
  io::asio::steady_timer kill_timer_;
  bool running_ = false;
  bool reaped_ = false;
  std::string failure_;
  std::optional<ExitStatus> exit_;
  std::chrono::steady_clock::time_point ended_at_{};
  bool stopping_ = false;
  std::chrono::steady_clock::time_point kill_at_ = std::chrono::steady_clock::time_point::max();
  std::vector<io::Fd> seen_below_;  ///< Its descendants when its stop began.
};

using ProcessPtr = std::shared_ptr<Process>;

}  // namespace dt::launcher
