/// Carries the output of all processes to the supervisor, and each exit after it: from the pipes
/// into the spools, from the spools into the supervisor's link, a piece of each process in turn, as
/// far as the supervisor gives room. An exit does not wait long for room.
#pragma once

#include <chrono>

#include "io/asio.h"
#include "launcher/agent/processes.h"
#include "launcher/agent/supervisor_link.h"

namespace dt::launcher {

class OutputPump {
 public:
  OutputPump(const io::asio::any_io_executor& executor, Processes& processes, SupervisorLink& link)
      : processes_(&processes), link_(&link), wake_(executor, io::kNever) {}

  /// Reads one pipe of a process to its end.
  io::awaitable<void> read(ProcessPtr process, bool is_stderr);
  /// Sends, until cancelled.
  io::awaitable<void> run();
  /// There may be something to send.
  void wake() { wake_.cancel(); }
  /// A new link, with `is_new_supervisor` or the same one: output sent before does not count.
  void attached(bool is_new_supervisor);
  /// The supervisor gives room.
  void take(const OutputRoom& room);
  /// The supervisor takes output, or did a moment ago: it is worth waiting for.
  [[nodiscard]] bool is_moving() const;
  /// When output was sent, or room was given, last.
  [[nodiscard]] std::chrono::steady_clock::time_point moved_at() const { return moved_at_; }
  /// Drops what processes have left, and tells the supervisor how much of each is missing.
  void give_up(bool is_killed);
  /// Processes that have had to wait for 10 s.
  [[nodiscard]] std::vector<ProcessId> held() const;

 private:
  io::awaitable<void> wait_for_room(ProcessPtr process, bool is_stderr);
  [[nodiscard]] OutputLoss why_lost() const;
  [[nodiscard]] bool send_from_each(const Channel& link);
  [[nodiscard]] bool send_piece(Process& process);
  void send(const Process& process, Spool::Piece piece);
  void send_output(Process& process);
  void send_exit(Process& process);
  void send_output_end(Process& process);

  Processes* processes_;
  SupervisorLink* link_;
  io::asio::steady_timer wake_;
  std::chrono::steady_clock::time_point moved_at_;
  OutputRoom room_{kFirstOutputRoom};  ///< Over the present link.
  std::uint64_t sent_ = 0;             ///< Bytes of output, over the present link.
  ProcessId last_served_;
};

}  // namespace dt::launcher
