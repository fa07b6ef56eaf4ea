#include "core/job/stalls.h"

namespace dt {

Duration Stalls::tick(const std::set<WorkerId>& waited_for, const std::set<WorkerId>& still,
                      Time now) {
  std::erase_if(stalls_, [&](const auto& s) {
    return waited_for.count(s.first) == 0 && still.count(s.first) == 0;
  });
  for (const WorkerId id : still) stalls_[id].is_waited_for = false;
  for (const WorkerId id : waited_for) stalls_[id].is_waited_for = true;
  return time_.advance(now);
}

}  // namespace dt
