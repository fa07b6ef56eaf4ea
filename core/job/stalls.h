/// How long each worker that others wait for has been inactive. Pure; core/job/stragglers.h reports
/// and stops it.
///
/// A stall is a duration, added up tick by tick only while nothing else can be the reason: the
/// caller passes no time for a worker whose host is not heard, while a server is not known to be
/// well, or before the worker was released into the epoch. It restarts at zero with any activity of
/// the worker, when an epoch begins and when the servers change.
#pragma once

#include <map>
#include <set>
#include <string>

#include "core/base/id.h"
#include "core/base/lookup.h"
#include "core/base/time.h"
#include "core/job/tick_time.h"

namespace dt {

class Stalls {
 public:
  struct Stall {
    Duration lasted{};
    bool is_waited_for = false;  ///< A round of others lacks its part. Otherwise: no sign of life.
    bool is_noted = false;       ///< Half of the time is over: there is a note.
    bool is_queried = false;     ///< The last query of its process's state was sent.
    std::string process;         ///< Its state in the kernel; empty until known.
  };

  /// The worker was active.
  void doing(WorkerId worker) { stalls_.erase(worker); }
  void clear() { stalls_.clear(); }

  /// Time passes. `waited_for`: workers that others wait for and that do not wait themselves;
  /// `still`: workers without a sign of life. The stalls of all others end. Returns the time to
  /// add.
  [[nodiscard]] Duration tick(const std::set<WorkerId>& waited_for, const std::set<WorkerId>& still,
                              Time now);
  [[nodiscard]] const std::map<WorkerId, Stall>& all() const { return stalls_; }
  [[nodiscard]] Stall* find(WorkerId worker) { return find_in(stalls_, worker); }

 private:
  std::map<WorkerId, Stall> stalls_;
  TickTime time_;
};

}  // namespace dt
