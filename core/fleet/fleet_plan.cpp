#include "core/fleet/fleet_plan.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/lookup.h"
#include "core/base/result.h"

namespace dt {
namespace {

/// A worker is there, or is to come.
bool is_in_use(const JobHost& host) { return host.in_file > host.empty && !host.is_given_up; }
bool is_left(const JobHost& host) { return !host.is_running && !is_in_use(host); }

class Planner {
 public:
  Planner(const std::vector<Machine>& machines, const JobWish& wish, const FleetRules& rules)
      : wish_(wish), rules_(rules), wanted_(wish.wanted), lines_(wish.lines) {
    for (const Machine& machine : machines) replaced_.insert(machine.replaces);
  }

  void look_at(const Machine& machine) {
    const JobHost& host = value_in(wish_.hosts, machine.host);
    if (machine.kept && !wish_.lets_go) look_at_kept(machine, host);
    if (machine.state == MachineState::kEnding) return look_at_ending(machine, host);
    if (wish_.lets_go) {
      // Of the launch, though it may have no mark yet.
      const bool is_kept = machine.mark == Mark::kBase || (host.is_own && !rules_.returns_idle);
      if (rules_.returns_at_end && !is_kept) let_go(machine, "the job has ended");
      return;
    }
    if (machine.state == MachineState::kPending) {
      if (machine.is_asked) let_go(machine, "it is wanted no more");
      return;
    }
    const bool is_second = !ready_.insert(machine.host).second;
    held_.insert(machine.host);
    if (machine.mark == Mark::kBase) {
      if (host.is_replaced && is_left(host)) idle(machine, "another host has its place");
      return;
    }
    if (host.in_file + host.empty > 0 && host.is_own) return look_at_own(machine, host);
    if (is_second) return idle(machine, "its host is the job's already");
    if (machine.is_asked) return look_at_asked(machine, host);
    if (machine.mark == Mark::kNone) return look_at_new(machine, host);
    look_at_joined(machine, host);
  }

  FleetPlan finish(const std::vector<std::string>& missing_before) {
    if (wish_.lets_go) return std::move(plan_);
    for (const auto& [name, host] : wish_.hosts) {
      if (!host.needs_machine || host.in_file == 0 || held_.contains(name)) continue;
      plan_.missing.push_back(name);
      const bool is_twice = std::ranges::find(missing_before, name) != missing_before.end();
      // A list can lie; a host whose agent answers has its machine.
      if (is_twice && !host.is_linked) act(DropHost{name, true});
    }
    return std::move(plan_);
  }

 private:
  void look_at_kept(const Machine& machine, const JobHost& host) {
    // If the machine has not joined, the notice belonged to an earlier one of that host.
    if (!host.is_leaving || host.in_file == 0 || machine.mark == Mark::kNone) return;
    const bool is_asked_for = replaced_.contains(machine.id);
    if (!is_asked_for || machine.state != MachineState::kEnding)
      act(Replace{machine.id, is_asked_for});
  }

  void look_at_ending(const Machine& machine, const JobHost& host) {
    held_.insert(machine.host);
    if (is_left(host)) {
      if (!machine.is_held_back) return;
      mark(machine, Mark::kRemoved);
      return act(Confirm{machine.id});
    }
    if (!machine.deadline) return;
    if (is_in_use(host) && !host.is_leaving) act(Leave{machine.host, machine.deadline});
    mark(machine, Mark::kRemovalQueued);
  }

  /// A machine of a host that is not the fleet's.
  void look_at_own(const Machine& machine, const JobHost& host) {
    if (host.is_base && machine.mark != Mark::kNone) return;  // it has replaced another one
    if (rules_.returns_idle || machine.mark != Mark::kNone)
      return idle(machine, "its host is the job's already");
    if (!host.is_leaving) return mark(machine, Mark::kBase);
    // It comes back under its name with another machine.
    if (!host.is_running && host.empty > 0) act(AddHost{machine.host, host.empty, machine.id});
  }

  void look_at_new(const Machine& machine, const JobHost& host) {
    if (is_in_use(host)) return mark(machine, Mark::kAddQueued);
    if (host.is_running) return;
    // Places of an earlier machine of that name, whose workers have left or which was given up.
    if (host.in_file > 0) return act(DropHost{machine.host});
    if (wish_.max_workers > 0 && wanted_ + machine.slots > wish_.max_workers)
      return idle(machine, fmt::format("nobody is wanted: host_worker has {} workers, and "
                                       "--max-workers is {}",
                                       wanted_, wish_.max_workers));
    // Leaving workers count until their host's lines are dropped.
    if (wish_.max_workers > 0 && lines_ + machine.slots > wish_.max_workers) return;
    wanted_ += machine.slots;
    lines_ += machine.slots;
    // Its mark comes once the line is in force: a supervisor that was killed does not show it yet.
    act(AddHost{machine.host, machine.slots, machine.id});
  }

  void look_at_joined(const Machine& machine, const JobHost& host) {
    if (is_left(host)) return idle(machine, "its workers are gone");
    if (!is_in_use(host)) return mark(machine, Mark::kRemovalQueued);
    if (host.is_member) mark(machine, Mark::kAdded);
  }

  void look_at_asked(const Machine& machine, const JobHost& host) {
    if (is_in_use(host) && !host.is_leaving) act(Leave{machine.host, machine.deadline});
    if (!is_left(host)) return mark(machine, Mark::kRemovalQueued);
    mark(machine, Mark::kRemoved);
    if (host.in_file > 0) act(DropHost{machine.host});
    let_go(machine, "it is wanted no more, and its workers are gone");
  }

  /// The job has no use for the machine.
  void idle(const Machine& machine, std::string why) {
    if (rules_.returns_idle) return let_go(machine, std::move(why));
    if (machine.mark != Mark::kNone) mark(machine, Mark::kRemoved);
  }

  void act(FleetAction action) { plan_.actions.push_back(std::move(action)); }
  void let_go(const Machine& machine, std::string why) { act(LetGo{machine.id, std::move(why)}); }
  void mark(const Machine& machine, Mark mark) {
    if (machine.mark < mark && (rules_.keeps_marks || machine.mark == Mark::kNone))
      act(SetMark{machine.id, mark});
  }

  const JobWish& wish_;
  const FleetRules& rules_;
  std::uint32_t wanted_;  ///< With those that are added.
  std::uint32_t lines_;   ///< With those that are added.
  std::set<std::string> replaced_;
  std::set<std::string> ready_;  ///< Hosts of ready machines.
  std::set<std::string> held_;   ///< Hosts that have a machine.
  FleetPlan plan_;
};

}  // namespace

FleetPlan plan_fleet(const std::vector<Machine>& machines, const JobWish& wish,
                     const FleetRules& rules, const std::vector<std::string>& missing_before) {
  Planner planner(machines, wish, rules);
  for (const Machine& machine : machines) planner.look_at(machine);
  return planner.finish(missing_before);
}

std::vector<Machine> newest_machines(const std::vector<Machine>& machines, std::size_t count) {
  std::vector<Machine> chosen;
  for (const MachineState state : {MachineState::kPending, MachineState::kReady}) {
    std::vector<Machine> of_state;
    std::ranges::copy_if(machines, std::back_inserter(of_state),
                         [&](const Machine& machine) { return machine.state == state; });
    std::ranges::stable_sort(of_state, std::ranges::greater(), &Machine::order);
    of_state.resize(std::min(of_state.size(), count - chosen.size()));
    std::ranges::move(of_state, std::back_inserter(chosen));
  }
  return chosen;
}

std::string reasons_of(const std::vector<Machine>& machines) {
  std::set<std::string_view> reasons;
  for (const Machine& machine : machines)
    if (machine.state == MachineState::kPending && !machine.why.empty())
      reasons.insert(machine.why);
  return reasons.empty() ? "" : fmt::format(" ({})", fmt::join(reasons, ", "));
}

std::optional<double> machine_hours(const std::vector<Machine>& machines, double now) {
  std::optional<double> hours;
  for (const Machine& machine : machines)
    if (machine.since) hours = hours.value_or(0) + std::max(0.0, now - *machine.since) / 3600;
  return hours;
}

std::string machines_for_people(const std::vector<Machine>& machines) {
  if (machines.empty()) return {};
  const auto pending = std::ranges::count(machines, MachineState::kPending, &Machine::state);
  return fmt::format("{} asked for{}{}", machines.size(),
                     pending > 0 ? fmt::format(", {} pending", pending) : "", reasons_of(machines));
}

}  // namespace dt
