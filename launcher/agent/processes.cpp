#include "launcher/agent/processes.h"

#include <algorithm>

#include "core/base/lookup.h"

namespace dt::launcher {

void Processes::add(ProcessPtr process) {
  const ProcessId id = process->id();
  all_.emplace(id, std::move(process));
}

ProcessPtr Processes::find(ProcessId id) const { return value_in(all_, id); }

ProcessPtr Processes::authenticate(const Identify& identify) const {
  ProcessPtr process = find(identify.process);
  return process && process->token() == identify.token ? process : nullptr;
}

Processes::Map::const_iterator Processes::after(ProcessId id) const {
  const auto next = all_.upper_bound(id);
  return next == all_.end() ? all_.begin() : next;
}

void Processes::acknowledge(ProcessId id) {
  const auto found = all_.find(id);
  if (found == all_.end() || !found->second->exit()) return;
  acknowledged_[id] = *found->second->exit();
  if (!found->second->output.comes_after_exit) all_.erase(found);
}

void Processes::output_ended(ProcessId id) {
  if (acknowledged_.contains(id)) all_.erase(id);
}

const ExitStatus* Processes::acknowledged(ProcessId id) const { return find_in(acknowledged_, id); }

bool Processes::owns(pid_t pid) const {
  return std::ranges::any_of(all_, [pid](const auto& one) {
    return one.second->pid() == pid && !one.second->is_reaped();
  });
}

bool Processes::all_reaped() const {
  return std::ranges::none_of(all_, [](const auto& one) { return one.second->has_pid(); });
}

bool Processes::all_ended() const {
  return std::ranges::all_of(all_, [](const auto& one) { return one.second->exit().has_value(); });
}

bool Processes::all_sent() const {
  return std::ranges::all_of(all_, [](const auto& one) {
    return one.second->output.spool.empty() && one.second->exit_sent;
  });
}

}  // namespace dt::launcher
