/// How long each worker that keeps others waiting has done nothing. Pure; core/job/job.h names it
/// and stops it.
///
/// A stall is a duration, added up tick by tick only while nothing else can be the reason: the
/// caller passes no time for a worker whose host is not heard, while a server is not known to be
/// well, or before the worker was released into the epoch. It begins at zero with any sign that the
/// worker does something, when an epoch begins and when the servers change.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/job/tick_time.h"

namespace dt {

class Stalls {
 public:
  struct Stall {
    Duration lasted{};
    bool is_waited_for = false;  ///< By others, in a round. Otherwise it gives no sign of life.
    bool told = false;           ///< Half of the time is over: there is a note.
    bool asked = false;          ///< What its process does was asked for the last time.
    std::string process;         ///< What it does, by its kernel; empty until that is known.
  };

  /// The worker did something.
  void doing(WorkerId worker) { stalls_.erase(worker); }
  void clear() { stalls_.clear(); }

  /// Time passes. `waited_for`: workers that others wait for while they wait for nobody; `still`:
  /// workers that give no sign of life. Everybody else stalls no more. Returns the time to add.
  [[nodiscard]] Duration tick(const std::set<WorkerId>& waited_for, const std::set<WorkerId>& still,
                              Time now);
  [[nodiscard]] const std::map<WorkerId, Stall>& all() const { return stalls_; }
  [[nodiscard]] Stall* find(WorkerId worker);

 private:
  std::map<WorkerId, Stall> stalls_;
  TickTime time_;
};

}  // namespace dt
