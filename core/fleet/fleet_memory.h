/// What a reconciler of a fleet remembers from one look at the provider's list to the next. It
/// loses nothing that matters when it dies: a machine's mark is kept by the provider. Pure.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/fleet/fleet_plan.h"

namespace dt {

class FleetMemory {
 public:
  /// What is to be done now, in this order, by `listed`, a complete list, and the newer `wish`.
  [[nodiscard]] std::vector<FleetAction> look(std::vector<Machine> listed, const JobWish& wish,
                                              const FleetRules& rules);
  /// Of the last look's actions, one that was done.
  void note_done(const FleetAction& action);
  /// A machine that was let go is still there: it is let go once more, and that is no news.
  [[nodiscard]] bool is_repeated(const FleetAction& action) const;

  /// The last list.
  [[nodiscard]] const std::vector<Machine>& machines() const { return machines_; }
  /// A machine that an action of the last look names.
  [[nodiscard]] const Machine& machine(const std::string& id) const;
  /// The last list differed from the one before.
  [[nodiscard]] bool is_changed() const { return is_changed_; }

 private:
  std::vector<Machine> machines_;
  std::vector<Machine> gone_;  ///< Kept machines that left the list and have no replacement yet.
  std::set<std::string> replaced_;  ///< Machines for which a replacement was asked for.
  std::set<std::string> confirmed_;
  std::set<std::string> let_go_;
  std::map<std::string, Mark> marks_;  ///< Set in this life; a list may be older.
  std::vector<std::string> missing_;   ///< FleetPlan::missing
  bool is_changed_ = false;
};

}  // namespace dt
