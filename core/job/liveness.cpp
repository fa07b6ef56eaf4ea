#include "core/job/liveness.h"

#include <algorithm>

namespace dt {

Life Liveness::life(const Host& host, std::optional<WorkerId> worker, Time now) const {
  const auto down = down_since(host);
  if (!down) return Life::kAlive;
  const Time* data = worker ? traffic_.find(*worker) : nullptr;
  const Time last_sign = data ? std::max(*down, *data) : *down;
  const Duration silent = now - last_sign;
  if (silent >= limits_.dead_after) return Life::kDead;
  if (last_sign > *down) return Life::kUnsupervised;
  return silent >= limits_.suspect_after ? Life::kSuspect : Life::kAlive;
}

}  // namespace dt
