/// Carries the output of all processes to the supervisor, and each exit after it: from the pipes
/// into the spools, from the spools into the supervisor's link, a piece of each process in turn.
#pragma once

#include <chrono>

#include "io/asio.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/supervisor_link.h"

namespace dt::launcher {

class OutputPump {
 public:
  OutputPump(const io::asio::any_io_executor& executor, const Processes& processes,
             SupervisorLink& link)
      : processes_(&processes),
        link_(&link),
        wake_(executor, io::asio::steady_timer::time_point::max()) {}

  /// Reads one pipe of a process to its end.
  io::awaitable<void> read(ProcessPtr process, bool is_stderr);
  /// Sends, until cancelled.
  io::awaitable<void> run();
  /// There may be something to send.
  void wake() { wake_.cancel(); }

 private:
  io::awaitable<void> wait_for_room(ProcessPtr process, bool is_stderr);
  [[nodiscard]] bool send_from_each(const Channel& link);
  [[nodiscard]] bool send_piece(Process& process);
  void send_output(Process& process);
  void send_exit(Process& process);

  const Processes* processes_;
  SupervisorLink* link_;
  io::asio::steady_timer wake_;
  std::chrono::steady_clock::time_point link_moved_;  ///< When it last had room for more.
  ProcessId last_served_;
};

}  // namespace dt::launcher
