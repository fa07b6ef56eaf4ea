#include "core/fleet/fleet_memory.h"

#include <algorithm>
#include <utility>

#include "core/base/lookup.h"

namespace dt {
namespace {

bool has(const std::vector<Machine>& machines, const std::string& id) {
  return std::ranges::find(machines, id, &Machine::id) != machines.end();
}

}  // namespace

std::vector<FleetAction> FleetMemory::look(std::vector<Machine> listed, const JobWish& wish,
                                           const FleetRules& rules) {
  for (const Machine& before : machines_) {
    if (!before.kept || before.mark == Mark::kNone || has(listed, before.id)) continue;
    gone_.push_back(before);
    gone_.back().state = MachineState::kEnding;
  }
  for (Machine& machine : listed) {
    // Not every provider can change what it keeps of a machine that ends.
    if (replaced_.contains(machine.id)) machine.kept.reset();
    machine.mark = std::max(machine.mark, value_in(marks_, machine.id));
  }
  is_changed_ = listed != machines_;
  machines_ = std::move(listed);
  for (const Machine& machine : machines_)
    if (!machine.replaces.empty()) replaced_.insert(machine.replaces);
  std::erase_if(gone_, [&](const Machine& machine) {
    return !value_in(wish.hosts, machine.host).is_leaving || replaced_.contains(machine.id) ||
           has(machines_, machine.id);
  });
  std::vector<Machine> all = machines_;
  all.insert(all.end(), gone_.begin(), gone_.end());
  FleetPlan plan = plan_fleet(all, wish, rules, missing_);
  missing_ = std::move(plan.missing);
  std::erase_if(plan.actions, [this](const FleetAction& action) {
    const auto* confirm = std::get_if<Confirm>(&action);
    return confirm && confirmed_.contains(confirm->id);
  });
  return std::move(plan.actions);
}

void FleetMemory::note_done(const FleetAction& action) {
  if (const auto* replace = std::get_if<Replace>(&action)) replaced_.insert(replace->id);
  if (const auto* confirm = std::get_if<Confirm>(&action)) confirmed_.insert(confirm->id);
  if (const auto* go = std::get_if<LetGo>(&action)) let_go_.insert(go->id);
  if (const auto* set = std::get_if<SetMark>(&action)) marks_[set->id] = set->mark;
}

bool FleetMemory::is_repeated(const FleetAction& action) const {
  const auto* go = std::get_if<LetGo>(&action);
  return go && let_go_.contains(go->id);
}

const Machine& FleetMemory::machine(const std::string& id) const {
  const auto listed = std::ranges::find(machines_, id, &Machine::id);
  return listed != machines_.end() ? *listed : *std::ranges::find(gone_, id, &Machine::id);
}

}  // namespace dt
