/// The processes of an agent, by id, and the exits that were acknowledged.
#pragma once

#include <map>

#include "core/protocol/control_messages.h"
#include "launcher/agent/process.h"

namespace dt::launcher {

class Processes {
 public:
  using Map = std::map<ProcessId, ProcessPtr>;

  void add(ProcessPtr process);
  /// Null: none, or its exit was acknowledged.
  [[nodiscard]] ProcessPtr find(ProcessId id) const;
  /// The process that a connection claims to be; null: it does not have that process's token.
  [[nodiscard]] ProcessPtr authenticate(const Identify& identify) const;
  /// The one after `id`, the first one after the last; end() only if there is none.
  [[nodiscard]] Map::const_iterator after(ProcessId id) const;

  /// Drops a process that has ended, once its output is sent. Its exit stays known: an id never
  /// starts twice.
  void acknowledge(ProcessId id);
  /// The output that came after the exit is sent.
  void output_ended(ProcessId id);
  /// The acknowledged exit; null: none.
  [[nodiscard]] const ExitStatus* acknowledged(ProcessId id) const;

  /// Whether `pid` is a process that is not reaped yet.
  [[nodiscard]] bool owns(pid_t pid) const;
  /// No process has its pid any more.
  [[nodiscard]] bool all_reaped() const;
  [[nodiscard]] bool all_ended() const;
  /// The supervisor has all output, and every exit.
  [[nodiscard]] bool all_sent() const;

  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] Map::const_iterator begin() const { return all_.begin(); }
  [[nodiscard]] Map::const_iterator end() const { return all_.end(); }

 private:
  Map all_;
  std::map<ProcessId, ExitStatus> acknowledged_;
};

}  // namespace dt::launcher
