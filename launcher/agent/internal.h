/// The agent's class, for the agent*.cpp files only: agent.cpp (its life), agent_socket.cpp (who
/// connects, and the processes' own connections), agent_link.cpp (the supervisor's link),
/// agent_processes.cpp (processes from start to end).
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <array>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/protocol/control_messages.h"
#include "io/asio.h"
#include "io/fd.h"
#include "io/frame_channel.h"
#include "io/log.h"
#include "io/process_tree.h"
#include "io/task_group.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/agent_files.h"
#include "launcher/agent/gpu_watch.h"
#include "launcher/agent/guard.h"
#include "launcher/agent/kept_ports.h"
#include "launcher/agent/spool.h"

namespace dt::launcher {

namespace asio = boost::asio;
using asio::awaitable;
using Clock = std::chrono::steady_clock;
using Channel = std::shared_ptr<io::FrameChannel>;

/// The first line of a file; empty when it cannot be read.
[[nodiscard]] std::string first_line(const char* path);

/// For the last words on a link that is about to be closed.
inline constexpr auto kFarewellDeadline = std::chrono::seconds(2);

/// What the agent was started with and changed for itself; its processes get it back.
struct Inherited {
  mode_t umask = 022;
  rlimit descriptor_limit{};
};

/// One process of the job, from its start until its exit is acknowledged.
struct Process {
  Process(asio::any_io_executor executor, ProcessId process, std::size_t spool_bytes);

  ProcessId id;
  std::string command;
  std::string token;                                ///< A secret of the process and the agent.
  std::optional<std::string> cuda_visible_devices;  ///< It was started with.
  Port ports = Port::kNone;                         ///< It was given.
  pid_t pid = 0;
  Spool spool;
  asio::posix::stream_descriptor pidfd;
  asio::posix::stream_descriptor exec_result;
  asio::posix::stream_descriptor out;
  asio::posix::stream_descriptor err;
  std::array<asio::steady_timer, 2> room;  ///< A reader each, while the spool is rather full.
  asio::steady_timer changed;              ///< finish_streams waits on it.
  asio::steady_timer kill_timer;           ///< kill_later waits on it.

  bool running = false;            ///< exec went well.
  bool reaped = false;             ///< pid may be somebody else's now.
  std::string failure;             ///< Why it could not be started.
  std::optional<ExitStatus> exit;  ///< Set when all of it has ended and its pipes are drained.
  bool exit_told = false;          ///< To the present supervisor.
  int open_pipes = 0;

  bool stopping = false;
  Clock::time_point kill_at = Clock::time_point::max();
  std::vector<io::Fd> seen_below;  ///< Descendants when it was told to stop.

  std::map<std::uint16_t, std::string> said;     ///< Latest FromProcess of each type.
  std::map<std::uint16_t, std::string> waiting;  ///< Latest ToProcess until it connects.
  Channel connection;
};
using ProcessPtr = std::shared_ptr<Process>;

class Agent {
 public:
  Agent(asio::io_context& context, AgentOptions options, AgentFiles files, GuardPlan plan,
        Guard guard, std::uint64_t incarnation, Inherited inherited);

  [[nodiscard]] Result<void> listen();
  awaitable<void> run();

 private:
  // Who connects (agent_socket.cpp).
  awaitable<void> accept_all();
  awaitable<void> serve(io::UnixSocket socket);
  awaitable<void> write_frames(Channel channel);
  /// Whether it is the process that it claims to be.
  [[nodiscard]] bool owns_token(const Identify& identify) const;
  awaitable<void> serve_process(Channel channel, ProcessPtr process);

  // The supervisor's link (agent_link.cpp).
  awaitable<void> serve_supervisor(Channel channel, AgentHello hello);
  awaitable<void> refuse(Channel channel, std::string why);
  [[nodiscard]] std::string objection(const AgentHello& hello) const;
  void attach(Channel channel, const AgentHello& hello);
  void detach(const Channel& channel);
  [[nodiscard]] AgentState state();
  [[nodiscard]] AgentPlace place() const { return {files_.socket, ports_.master(), ports_.root()}; }
  awaitable<void> pump();
  bool send_piece(Process& process);
  [[nodiscard]] Result<void> obey(const wire::Frame& frame);
  template <class Message>
  [[nodiscard]] Result<void> obey_as(const wire::Frame& frame);
  void handle(const AgentHello& hello);
  void adopt(const AgentHello& hello);
  void handle(const StartProcess& start);
  void handle(const StopProcess& stop);
  void handle(const AckExit& ack);
  void handle(const AskProcess& question);
  void handle(const CheckFolder& question);
  void handle(const ToProcess& message);
  void handle(const Shutdown& shutdown);
  template <class Message>
  void tell(const Message& message) {
    if (link_) link_->send(message);
  }

  // Processes (agent_processes.cpp).
  awaitable<void> live(ProcessPtr process);
  awaitable<void> wait_for_exec(ProcessPtr process);
  awaitable<void> drain(ProcessPtr process, bool is_stderr);
  awaitable<void> wait_for_room(ProcessPtr process, bool is_stderr);
  awaitable<void> end_leftovers(ProcessPtr process);
  awaitable<void> finish_streams(ProcessPtr process);
  awaitable<void> kill_later(ProcessPtr process);
  [[nodiscard]] Result<void> start(Process& process, const StartProcess& start);
  void stop(const ProcessPtr& process, std::uint32_t grace_ms);
  void kill_now(Process& process);
  /// Orphans without any mark (own session, own environment) can be told apart from the children of
  /// others only when there are no others.
  void kill_anonymous();

  // Around it all (agent.cpp).
  awaitable<void> live_and_end();
  awaitable<void> housekeeping();
  awaitable<void> watch_guard();
  awaitable<void> watch_signals();
  awaitable<void> stop_all();
  awaitable<void> sweep_all();
  [[nodiscard]] GpuHealth gpu_health() const;
  /// Tells what the processes use, every few seconds.
  awaitable<void> tell_usage();
  awaitable<void> check_folder(std::string folder);
  void check_loneliness();
  void reap_adopted();
  void request_stop(std::uint32_t grace_ms, std::string why);

  asio::any_io_executor executor_;
  AgentOptions options_;
  AgentFiles files_;
  GuardPlan plan_;
  Guard guard_;
  std::uint64_t incarnation_;
  Inherited inherited_;
  std::string boot_id_;
  io::FdLog log_;
  asio::local::stream_protocol::acceptor acceptor_;
  io::TaskGroup tasks_;
  GpuWatch gpus_;
  KeptPorts ports_{ports_to_keep()};
  asio::steady_timer pump_wake_;
  asio::steady_timer stop_wake_;

  std::size_t strangers_ = 0;
  KeptOut kept_out_;           ///< Of the socket.
  KeptOut kept_out_told_;      ///< To the present supervisor.
  GpuHealth gpu_health_told_;  ///< To the present supervisor.
  Channel link_;               ///< The supervisor's, or none.
  Term term_;
  Clock::time_point link_moved_;  ///< When it last had room for more output.
  bool was_attached_ = false;
  Clock::time_point heard_at_;  ///< The supervisor's last message.
  bool keeps_alive_ = false;    ///< It repeats AgentHello, so its silence means something.
  Clock::time_point alone_since_ = Clock::now();
  Duration orphan_timeout_ = std::chrono::seconds(300);
  Duration beat_ = std::chrono::milliseconds(250);
  std::uint64_t beats_ = 0;

  std::map<ProcessId, ProcessPtr> processes_;
  std::map<ProcessId, ExitStatus> forgotten_;  ///< Acknowledged: an id never starts twice.
  ProcessId last_served_;                      ///< By the pump: everyone's turn comes.
  bool stop_requested_ = false;
  std::uint32_t stop_grace_ms_ = 0;
};

}  // namespace dt::launcher
