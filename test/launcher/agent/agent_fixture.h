/// A real dtagent behind a LocalBackend, and a supervisor's end that records all that it receives.
#pragma once

#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/frame_channel.h"
#include "io/task_group.h"
#include "launcher/backend/local.h"

namespace dt::test {

/// The messages of an agent's stream to a supervisor, in order, and by process.
class Link {
 public:
  Link(io::asio::io_context& context, std::unique_ptr<io::ByteStream> stream);
  ~Link();

  template <class Message>
  void send(const Message& message) {
    channel_->send(message);
  }
  void send_raw(std::string bytes) { channel_->send_bytes(std::move(bytes)); }
  [[nodiscard]] bool all_sent() const { return channel_->queued_bytes() == 0; }
  void close();

  std::vector<AgentState> states;
  std::vector<Refused> refusals;
  std::vector<wire::Frame> frames;  ///< All but Beat and Output.
  std::map<ProcessId, std::string> out;
  std::map<ProcessId, std::string> err;
  std::map<ProcessId, std::uint64_t> lost;
  std::map<ProcessId, OutputLoss> why_lost;
  std::map<ProcessId, std::vector<std::int32_t>> started;
  std::map<ProcessId, std::vector<ExitStatus>> exits;  ///< From ProcessExited and AgentState.
  std::map<ProcessId, std::vector<std::string>> failures;
  std::vector<FromProcess> said;
  std::uint64_t beats = 0;
  std::map<ProcessId, std::uint64_t> received;  ///< Bytes received, for AgentHello.
  std::vector<std::string> gaps;  ///< Output that did not begin where the previous output ended.
  bool output_after_exit = false;
  bool reading = true;  ///< False: lets the stream fill up.
  bool ended = false;
  std::string end_reason;

 private:
  io::awaitable<void> read_all();
  io::awaitable<void> write_all();
  void take(const wire::Frame& frame);

  io::asio::io_context& context_;
  std::unique_ptr<io::FrameChannel> channel_;
  io::TaskGroup tasks_;
};

/// A temporary XDG_RUNTIME_DIR, a job, and its agents. Ends a test's leftover processes.
class Site {
 public:
  Site();
  ~Site();

  /// Attaches (and starts) the agent of `host`; sends AgentHello unless `term` is 0, with the
  /// counts that `before` received.
  std::unique_ptr<Link> attach(std::uint64_t term = 1, const std::string& host = "node1",
                               std::vector<std::string> more = {"--start"},
                               const Link* before = nullptr);
  /// Runs the event loop until `condition` holds or `limit` is over; returns its last result.
  bool wait(const std::function<bool()>& condition,
            std::chrono::milliseconds limit = std::chrono::seconds(20));
  /// The only agent's socket in the job's folder; empty if there is none.
  [[nodiscard]] std::string socket() const;
  /// Process numbers whose environment has DT_MARK of this job, and their command names.
  [[nodiscard]] std::vector<pid_t> marked() const;
  /// The pids of the agent and its guard; 0 if there is none, or if it has no name yet.
  [[nodiscard]] pid_t agent_pid() const;
  [[nodiscard]] pid_t guard_pid() const;
  /// The same, once both are there and have their names.
  [[nodiscard]] pid_t agent();
  [[nodiscard]] pid_t guard();

  io::asio::io_context context;
  std::string folder;
  std::string job;
  std::string program = DT_AGENT_PROGRAM;
  std::uint32_t orphan_timeout_ms = 300'000;
  std::uint32_t beat_ms = 50;
  std::uint64_t room = std::uint64_t{1} << 40;  ///< OutputRoom of each link; 0: none is sent.
};

inline ProcessId worker(std::uint32_t id) { return {Role::kWorker, id}; }
/// A StartProcess for `sh -c script`.
StartProcess shell(ProcessId id, std::string script);
[[nodiscard]] bool alive(pid_t pid);
[[nodiscard]] pid_t parent_of(pid_t pid);
/// Processes of this machine whose command line contains `text`.
[[nodiscard]] std::vector<pid_t> processes_with(const std::string& text);

/// The number a script wrote into `<folder>/<name>`, once the line is whole.
[[nodiscard]] pid_t pid_in(Site& site, const std::string& name);
[[nodiscard]] bool exited(const Link& link, std::uint32_t id);
[[nodiscard]] StopProcess stop_of(std::uint32_t id, std::uint32_t grace_ms);
[[nodiscard]] AckExit ack_of(std::uint32_t id);
/// An agent's report of worker `id`; null without one.
[[nodiscard]] const ProcessReport* report_of(const AgentState& state, std::uint32_t id);
/// A connection to the agent's socket, as a worker would make.
[[nodiscard]] std::unique_ptr<Link> connect_to(Site& site, const std::string& path);

}  // namespace dt::test
