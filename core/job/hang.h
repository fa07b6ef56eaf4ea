/// Who keeps the others waiting in the middle of an epoch, by what servers report: whom open rounds
/// wait for, who waits there, and who did something. Pure. It only measures; core/job/job.h
/// decides.
///
/// Others wait for a worker where an open round lacks its part and it waits in no round itself. So
/// a slow worker that waits for another is not meant, nor one after its last round of the epoch.
/// How long that lasts is core/job/stalls.h's matter.
///
/// A worker stands still if it is connected and nothing comes, not even the beats of the library's
/// own thread: then nobody needs to wait for it, and it may be the only one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"

namespace dt {

/// Where a worker last said it was.
struct Position {
  Epoch epoch;
  std::uint64_t step = 0;
  Time since{};  ///< When it was first said.
};

class HangWatch {
 public:
  struct Report {
    std::vector<WorkerId> busy;
    std::vector<WorkerId> owing;
    std::vector<WorkerId> waiting;
  };

  /// Whose data connections showed life, be it a beat, and who has none and may mean it.
  void signs_of_life(const std::vector<WorkerId>& alive, const std::vector<WorkerId>& disconnected,
                     Time now);
  void report(ServerId server, const Report& report);
  /// True if the worker was not there yet.
  bool progress(WorkerId worker, Epoch epoch, std::uint64_t step, Time now);
  void forget(WorkerId worker);
  /// Others serve from now on.
  void forget_servers() { reports_.clear(); }

  /// Workers that others wait for and that wait for nobody.
  [[nodiscard]] std::set<WorkerId> waited_for() const;
  [[nodiscard]] std::set<WorkerId> standing_still(Time now) const;
  /// It waits in a round for somebody.
  [[nodiscard]] bool waits(WorkerId worker) const;
  [[nodiscard]] std::optional<Position> position(WorkerId worker) const;

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
