/// The agent: one per host and job. It starts, watches and stops the job's processes there, carries
/// their output and messages to whichever supervisor is attached, and lives on without one. See
/// core/protocol/control_messages.h for the rules of its links.
#pragma once

#include <string>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/log.h"
#include "io/task_group.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/guard_keeper.h"
#include "launcher/agent/kept_ports.h"
#include "launcher/agent/listener.h"
#include "launcher/agent/output_pump.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/supervisor_link.h"

namespace dt::launcher {

struct AgentOptions {
  std::string job;
  std::string host;                                    ///< As written by the user.
  bool is_first = false;                               ///< See BridgeOptions.
  Duration lonely_timeout = std::chrono::seconds(60);  ///< Never attached for so long: exit.
  std::size_t spool_bytes = std::size_t{8} << 20;      ///< Per process.
};

/// Composes the parts: what happens in one, it passes to the others. One thread.
class Agent {
 public:
  /// `plan`: of `guard`, and of those that replace it. `incarnation`: random per agent life.
  Agent(io::asio::io_context& context, AgentOptions options, AgentFiles files, GuardPlan plan,
        Guard guard, std::uint64_t incarnation, ProcessDefaults defaults);

  [[nodiscard]] Result<void> listen() { return listener_.listen(); }
  /// Returns once it is to stop, or was without a supervisor for too long.
  io::awaitable<void> run();

 private:
  // Connections.
  io::awaitable<void> serve_supervisor(Channel channel, AgentHello hello);
  io::awaitable<void> serve_process(Channel channel, ProcessPtr process);
  void count_dropped(const Error& why);
  io::awaitable<void> refuse(Channel channel, std::string why);
  [[nodiscard]] std::string objection(const AgentHello& hello) const;
  void attach(Channel channel, const AgentHello& hello);

  // The supervisor's messages.
  /// Gives the frame to the handler of its type.
  template <class Message, class... Others>
  [[nodiscard]] Result<void> handle_as(const wire::Frame& frame);
  void handle(const AgentHello& hello);
  void handle(const StartProcess& message);
  void handle(const StopProcess& message);
  void handle(const AckExit& ack);
  void handle(const AskProcess& question);
  void handle(const CheckFolder& question);
  void handle(const ToProcess& message);
  void handle(const Shutdown& shutdown);

  // What it reports.
  [[nodiscard]] AgentState state() const;
  [[nodiscard]] AgentPlace place() const { return {files_.socket, ports_.master(), ports_.root()}; }
  [[nodiscard]] GpuHealth gpu_health() const;
  void send_started(const Process& process);
  io::awaitable<void> send_usage();
  io::awaitable<void> check_folder(std::string folder);

  // Processes.
  io::awaitable<void> live(ProcessPtr process);
  void start(const StartProcess& message);
  /// Kills orphans without any mark (own session, own environment). While another process of the
  /// job lives they cannot be distinguished from its children.
  void kill_anonymous();
  void reap_adopted();

  // Its own life.
  io::awaitable<void> housekeeping();
  io::awaitable<void> watch_signals();
  io::awaitable<void> live_and_end();
  io::awaitable<void> wait_for_all();
  io::awaitable<void> kill_rest();
  io::awaitable<void> wait_until_sent();
  void request_stop(std::uint32_t grace_ms, const std::string& why);

  io::asio::any_io_executor executor_;
  AgentOptions options_;
  AgentFiles files_;
  ProcessDefaults defaults_;
  std::uint64_t incarnation_;
  io::FdLog log_;
  io::TaskGroup tasks_;
  GuardKeeper guard_;
  GpuWatch gpus_;
  KeptPorts ports_{ports_to_keep()};
  SupervisorLink link_;
  Processes processes_;
  OutputPump output_;
  KeptOut kept_out_;
  Listener listener_;

  std::uint64_t beats_ = 0;
  KeptOut kept_out_sent_;      ///< To the present supervisor.
  GpuHealth gpu_health_sent_;  ///< To the present supervisor.
  bool stop_requested_ = false;
  std::uint32_t stop_grace_ms_ = 0;
  io::asio::steady_timer stop_wake_;
};

}  // namespace dt::launcher
