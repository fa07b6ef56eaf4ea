/// A provider of machines, as it is and as it shows itself: what it lists may be old, lack some or
/// all of them, or be an error.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "core/fleet/fleet_plan.h"
#include "test/sim/random.h"

namespace dt::sim {

/// What differs between providers.
struct ProviderKind {
  const char* name = "";
  FleetRules rules = {};
  bool may_let_go = true;      ///< A script never gives a machine back.
  bool holds_back = false;     ///< A machine whose end is asked for waits for Confirm, for a while.
  bool replaces_kept = false;  ///< Replace asks for another one.
  bool reuses_hosts = false;   ///< A new machine may have the name of one that has gone.
};

struct CloudMachine {
  Machine is;
  bool is_gone = false;
  bool is_base = false;
  bool has_lost_line = false;  ///< It was in host_worker, and was taken out.
  int ready_at = 0;
  std::optional<int> gone_at;
};

class Cloud {
 public:
  Cloud(const ProviderKind& kind, Random& random) : kind_(kind), random_(random) {}

  CloudMachine& begin(std::string host, bool is_base, int now);
  /// Pending ones become ready, those that end are gone at their time.
  void pass(int now);
  /// A complete list, as it is or as it was; nullopt: an error.
  std::optional<std::vector<Machine>> list(bool may_lie);
  /// What was listed before is not listed any more.
  void forget_past() { past_.clear(); }
  [[nodiscard]] CloudMachine* find(const std::string& id);
  /// The machine that has the host now, ready or ending.
  [[nodiscard]] CloudMachine* on(const std::string& host);
  [[nodiscard]] std::deque<CloudMachine>& all() { return machines_; }
  [[nodiscard]] const ProviderKind& kind() const { return kind_; }

 private:
  [[nodiscard]] std::vector<Machine> truth() const;

  const ProviderKind& kind_;
  Random& random_;
  std::deque<CloudMachine> machines_;
  std::deque<std::vector<Machine>> past_;  ///< Former lists, the newest last.
  std::uint64_t next_ = 1;
};

}  // namespace dt::sim
