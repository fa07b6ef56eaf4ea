#include "test/sim/fleet/cloud.h"

#include <algorithm>

namespace dt::sim {
namespace {

constexpr std::size_t kPast = 4;

}  // namespace

CloudMachine& Cloud::begin(std::string host, bool is_base, int now) {
  CloudMachine& machine = machines_.emplace_back();
  machine.is.id = std::to_string(next_);
  machine.is.order = next_++;
  machine.is.host = std::move(host);
  machine.is_base = is_base;
  machine.ready_at = is_base ? now : now + static_cast<int>(random_.between(0, 6));
  return machine;
}

void Cloud::pass(int now) {
  for (CloudMachine& machine : machines_) {
    if (machine.is_gone) continue;
    if (machine.is.state == MachineState::kPending && machine.ready_at <= now)
      machine.is.state = MachineState::kReady;
    if (machine.gone_at && *machine.gone_at <= now) machine.is_gone = true;
  }
  past_.push_back(truth());
  if (past_.size() > kPast) past_.pop_front();
}

std::optional<std::vector<Machine>> Cloud::list(bool may_lie) {
  if (!may_lie) return truth();
  if (random_.chance(0.15)) return std::nullopt;
  if (random_.chance(0.1)) return std::vector<Machine>();
  // Only where names do not come back: what is true of an old machine would be believed of a new
  // one.
  const bool is_old = !kind_.reuses_hosts && !past_.empty() && random_.chance(0.2);
  std::vector<Machine> shown = is_old ? past_[random_.between(0, past_.size() - 1)] : truth();
  if (random_.chance(0.15))
    std::erase_if(shown, [this](const Machine&) { return random_.chance(0.4); });
  return shown;
}

std::vector<Machine> Cloud::truth() const {
  std::vector<Machine> shown;
  for (const CloudMachine& machine : machines_) {
    // No Slurm job holds a host of the launch for it.
    if (machine.is_gone || (machine.is_base && kind_.rules.returns_idle)) continue;
    shown.push_back(machine.is);
    if (machine.is.state == MachineState::kPending) shown.back().host.clear();
  }
  return shown;
}

CloudMachine* Cloud::find(const std::string& id) {
  const auto found = std::ranges::find_if(
      machines_, [&](const CloudMachine& machine) { return machine.is.id == id; });
  return found == machines_.end() ? nullptr : &*found;
}

CloudMachine* Cloud::on(const std::string& host) {
  const auto found = std::ranges::find_if(machines_, [&](const CloudMachine& machine) {
    return !machine.is_gone && machine.is.host == host &&
           machine.is.state != MachineState::kPending;
  });
  return found == machines_.end() ? nullptr : &*found;
}

}  // namespace dt::sim
