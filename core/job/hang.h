/// Which workers block an epoch, by the servers' reports: the workers that open rounds lack, those
/// that wait in them, and those that were active. Pure. It only measures; core/job/stalls.h adds up
/// the time and core/job/stragglers.h decides.
///
/// Others wait for a worker if an open round lacks its part and it waits in no round itself. That
/// excludes a slow worker that waits for another, and one after its last round of the epoch.
///
/// A worker stands still if it is connected and sends nothing, not even the heartbeats of the
/// library's own thread. This holds for the only worker, too, which no other waits for.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"

namespace dt {

/// The position that a worker last reported.
struct Position {
  Epoch epoch;
  std::uint64_t step = 0;
  Time since{};  ///< When it was first reported.
};

class HangWatch {
 public:
  struct Report {
    std::vector<WorkerId> busy;
    std::vector<WorkerId> owing;
    std::vector<WorkerId> waiting;
  };

  /// Workers whose data connections showed life, at least a heartbeat, and those without any.
  void signs_of_life(const std::vector<WorkerId>& alive, const std::vector<WorkerId>& disconnected,
                     Time now);
  void report(ServerId server, const Report& report);
  /// True if the position is new.
  bool progress(WorkerId worker, Epoch epoch, std::uint64_t step, Time now);
  void forget(WorkerId worker);
  /// New servers replace those that reported.
  void forget_servers() { reports_.clear(); }

  /// Workers that others wait for and that do not wait themselves.
  [[nodiscard]] std::set<WorkerId> waited_for() const;
  [[nodiscard]] std::set<WorkerId> standing_still(Time now) const;
  /// It waits in a round.
  [[nodiscard]] bool waits(WorkerId worker) const;
  /// Null: it never reported one.
  [[nodiscard]] const Position* position(WorkerId worker) const {
    return find_in(positions_, worker);
  }

 private:
  struct Last {
    std::set<WorkerId> owing;
    std::set<WorkerId> waiting;
  };

  std::map<ServerId, Last> reports_;
  std::map<WorkerId, Time> alive_;  ///< The last sign of life.
  std::map<WorkerId, Position> positions_;
};

}  // namespace dt
