/// Who keeps the others waiting in the middle of an epoch, by what servers report: whom open rounds
/// wait for, who waits there, and who did something. Pure. It only measures; core/job.h decides.
///
/// A worker stalls from the report on that says: others wait for it, it waits for nobody. A report
/// that it did something, or a new position of its own, begins the time anew. So a slow worker does
/// not stall, nor does one that waits for another, nor one after its last round of the epoch.
///
/// It stands still if it is connected and nothing comes, not even the beats of the library's own
/// thread: then nobody needs to wait for it, and it may be the only one.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/id.h"

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
  void report(ServerId server, const Report& report, Time now);
  void progress(WorkerId worker, Epoch epoch, std::uint64_t step, Time now);
  void forget(WorkerId worker);
  /// Others serve from now on.
  void forget_servers();

  /// Whom others wait for and who waits for nobody, and since when.
  [[nodiscard]] const std::map<WorkerId, Time>& stalling() const { return stalling_; }
  /// Who stands still, and since when.
  [[nodiscard]] std::map<WorkerId, Time> standing_still(Time now) const;
  /// It waits in a round for somebody.
  [[nodiscard]] bool waits(WorkerId worker) const;
  /// Every server has reported lately. If not, nothing is known of the present.
  [[nodiscard]] bool is_informed(std::size_t servers, Time now) const;
  [[nodiscard]] std::optional<Position> position(WorkerId worker) const;

 private:
  struct Last {
    Time at{};
    std::set<WorkerId> owing;
    std::set<WorkerId> waiting;
  };

  std::map<ServerId, Last> reports_;
  std::map<WorkerId, Time> stalling_;
  std::map<WorkerId, Time> alive_;  ///< The last sign of life.
  std::map<WorkerId, Position> positions_;
};

}  // namespace dt
