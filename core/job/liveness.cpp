#include "core/job/liveness.h"

#include <algorithm>

namespace dt {

Life Liveness::life(const Host& host, std::optional<WorkerId> worker, Time now) const {
  const auto down = down_since(host);
  if (!down) return Life::kAlive;
  const Time last_sign = worker ? std::max(*down, value_in(traffic_, *worker)) : *down;
  const Duration silent = now - last_sign;
  if (silent >= limits_.dead_after) return Life::kDead;
  if (last_sign > *down) return Life::kUnsupervised;
  return silent >= limits_.suspect_after ? Life::kSuspect : Life::kAlive;
}

}  // namespace dt
