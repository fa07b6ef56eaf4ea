/// The time between two ticks, for waits that are added up. Pure.
#pragma once

#include <algorithm>
#include <optional>

#include "core/base/time.h"

namespace dt {

class TickTime {
 public:
  /// The time since the last call; of a pause of the supervisor's own only the first second.
  [[nodiscard]] Duration advance(Time now) {
    const Duration passed = now - last_.value_or(now);
    last_ = now;
    return std::clamp<Duration>(passed, Duration{}, std::chrono::seconds(1));
  }
  [[nodiscard]] const std::optional<Time>& last() const { return last_; }

 private:
  std::optional<Time> last_;
};

}  // namespace dt
