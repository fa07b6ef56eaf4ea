/// What is to be done about the machines of a job's fleet, from what their provider lists and what
/// the job says. Stateless: whoever does it again, or after another one has died half way, does no
/// harm. Pure.
///
/// No machine is ever let go that nobody asked for (FleetRules says who may), nor one on which a
/// worker of the job is left; none of the launch. A host leaves host_worker only because its owner
/// takes it, or asked for it, or because two complete lists in a row lack it and its agent is gone.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/fleet/fleet_machine.h"

namespace dt {

/// Who may ask for a machine's end, beside Machine::is_asked.
struct FleetRules {
  /// The job itself, of a machine that it does not use: its line was removed, its workers have
  /// left, nobody wants it, or its host was the job's already.
  bool returns_idle = false;
  bool returns_at_end = false;  ///< The job's end, of all machines that are not of the launch.
  bool keeps_marks = true;      ///< False: the provider keeps the first mark of a machine alone.
};

/// A host as the job knows it.
struct JobHost {
  std::uint32_t in_file = 0;  ///< Workers in the host_worker in force, within --max-workers or not.
  std::uint32_t empty = 0;    ///< Those of them that have left for good.
  bool is_running = false;    ///< A worker there is not gone yet.
  bool is_member = false;     ///< host_worker_log has ADDED of a worker there, and not its REMOVED.
  bool is_given_up = false;   ///< The job tries it no more.
  bool is_linked = false;     ///< Its agent is connected.
  bool is_leaving = false;    ///< It goes away by a notice, or has.
  bool is_own = false;   ///< Not the fleet's: of the launch, or reached without a machine of it.
  bool is_base = false;  ///< The job keeps its workers, whatever host_worker says.
  bool is_replaced = false;    ///< A host of the launch: another host has its base workers.
  bool needs_machine = false;  ///< It was the fleet's: without a machine nothing can run there.
};

/// What the job says.
struct JobWish {
  bool lets_go = false;           ///< It has ended: nothing is wanted.
  std::uint32_t max_workers = 0;  ///< 0: no limit.
  std::uint32_t wanted = 0;       ///< Workers in host_worker, without those that go away.
  std::uint32_t lines = 0;        ///< Workers in host_worker.
  std::map<std::string, JobHost> hosts = {};
};

/// The host is added to the job, unless it is there.
struct AddHost {
  std::string host;
  std::uint32_t slots = 1;
  std::string id;  ///< The machine's.
  friend bool operator==(const AddHost&, const AddHost&) = default;
};
/// The host's lines are taken out of host_worker.
struct DropHost {
  std::string host;
  bool machine_is_gone = false;  ///< Nothing can run there any more.
  friend bool operator==(const DropHost&, const DropHost&) = default;
};
/// The host's workers leave, by the deadline where there is one, else at the next boundary.
struct Leave {
  std::string host;
  std::optional<double> deadline;
  friend bool operator==(const Leave&, const Leave&) = default;
};
/// The provider keeps the machine's mark from now on.
struct SetMark {
  std::string id;
  Mark mark = Mark::kNone;
  friend bool operator==(const SetMark&, const SetMark&) = default;
};
/// The machine is given back to its provider.
struct LetGo {
  std::string id;
  std::string why;
  friend bool operator==(const LetGo&, const LetGo&) = default;
};
/// The machine has been left: its owner need not hold it back any longer.
struct Confirm {
  std::string id;
  friend bool operator==(const Confirm&, const Confirm&) = default;
};
/// Another machine is asked for in the place of one that its owner takes, unless `is_asked_for`;
/// then this one is kept no more.
struct Replace {
  std::string id;
  bool is_asked_for = false;
  friend bool operator==(const Replace&, const Replace&) = default;
};
using FleetAction = std::variant<AddHost, DropHost, Leave, SetMark, LetGo, Confirm, Replace>;

struct FleetPlan {
  std::vector<FleetAction> actions;
  std::vector<std::string> missing;  ///< Hosts in host_worker whose machine the list does not have.
};
/// `machines`: one complete list, in the order in which they came, then kept machines that have
/// left the list without a replacement, in state kEnding. `wish` is newer than the list.
/// `missing_before`: FleetPlan::missing of the previous list.
[[nodiscard]] FleetPlan plan_fleet(const std::vector<Machine>& machines, const JobWish& wish,
                                   const FleetRules& rules,
                                   const std::vector<std::string>& missing_before);

/// Which machines `dtctl shrink` takes: pending ones first, then those that are ready, by the
/// highest order. Fewer than `count` if there are no more.
[[nodiscard]] std::vector<Machine> newest_machines(const std::vector<Machine>& machines,
                                                   std::size_t count);

/// " (Priority, Resources)": why machines are pending; empty: nobody says.
[[nodiscard]] std::string reasons_of(const std::vector<Machine>& machines);
/// The sum of hours since machines came, `now` in seconds since 1970; nullopt: none says since.
[[nodiscard]] std::optional<double> machine_hours(const std::vector<Machine>& machines, double now);
/// "3 asked for, 2 pending (Priority, Resources)"; empty without machines.
[[nodiscard]] std::string machines_for_people(const std::vector<Machine>& machines);

}  // namespace dt
