/// A host of a swarm: an agent as the supervisor sees it, with processes that are none. It has the
/// agent's own link to the supervisor and its mailboxes; what the agent does with the operating
/// system is missing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/protocol/control_messages.h"
#include "io/task_group.h"
#include "launcher/agent/mailbox.h"
#include "launcher/agent/supervisor_link.h"
#include "test/bench/swarm/process.h"
#include "test/bench/swarm/world.h"

namespace dt::swarm {

/// A literal address for a host of that name; the same wherever it is asked for.
[[nodiscard]] std::string address_of(const std::string& name);

/// One thread. It outlives the tasks that it spawns.
class SwarmHost {
 public:
  SwarmHost(io::asio::any_io_executor executor, io::TaskGroup& tasks, World& world,
            std::string name);

  /// A connection over which `dtagent --attach` was run, until it is over; `starts`: with --start.
  io::awaitable<void> serve(launcher::Channel channel, bool starts);
  /// The host loses its power: all that runs there ends without a word.
  void lose();
  /// It can be reached again.
  void boot() { is_lost_ = false; }
  [[nodiscard]] bool is_lost() const { return is_lost_; }
  [[nodiscard]] bool is_attached() const { return link_.is_attached(); }

 private:
  struct Known {
    std::unique_ptr<Process> process;
    launcher::Mailbox mailbox;
    std::optional<ExitStatus> exit;
  };
  using KnownPtr = std::shared_ptr<Known>;

  void begin();
  void handle(const wire::Frame& frame);
  void on(const AgentHello& hello);
  void on(const StartProcess& message);
  void on(const StopProcess& message);
  void on(const AckExit& message);
  void on(const AskProcess&) {}
  void on(const CheckFolder& message);
  void on(const ToProcess& message);
  void on(const Shutdown& message);
  [[nodiscard]] std::string objection(const AgentHello& hello) const;
  [[nodiscard]] AgentState state() const;
  void say(ProcessId process, wire::Frame frame);
  io::awaitable<void> live(KnownPtr known, std::uint64_t incarnation);
  io::awaitable<void> housekeeping(std::uint64_t incarnation);
  void end_all();
  void part_if_done();

  io::asio::any_io_executor executor_;
  io::TaskGroup& tasks_;
  World& world_;
  std::string name_;
  launcher::SupervisorLink link_;
  std::uint32_t boots_ = 0;
  std::uint64_t lives_ = 0;        ///< Agents so far.
  std::uint64_t incarnation_ = 0;  ///< 0: no agent runs.
  bool is_stopping_ = false;
  bool is_lost_ = false;
  std::map<ProcessId, KnownPtr> processes_;
};

}  // namespace dt::swarm
