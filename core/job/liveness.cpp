#include "core/job/liveness.h"

#include <algorithm>

namespace dt {

std::optional<Time> Liveness::down_since(const Host& host) const {
  const auto it = down_since_.find(host);
  if (it == down_since_.end()) return std::nullopt;
  return it->second;
}

Life Liveness::life(const Host& host, std::optional<WorkerId> worker, Time now) const {
  const auto down = down_since(host);
  if (!down) return Life::kAlive;
  Time last_sign = *down;
  if (worker) {
    if (const auto it = traffic_.find(*worker); it != traffic_.end() && it->second > last_sign)
      last_sign = it->second;
  }
  const Duration silent = now - last_sign;
  if (silent >= limits_.dead_after) return Life::kDead;
  if (last_sign > *down) return Life::kUnsupervised;
  return silent >= limits_.suspect_after ? Life::kSuspect : Life::kAlive;
}

}  // namespace dt
