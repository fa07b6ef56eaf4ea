/// How long to wait before the next try on a host, and how many failures a host may have. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/time.h"

namespace dt {

/// Failures of a host's workers, of which healthy time forgives one after the other.
class Failures {
 public:
  /// One more failure then, by JobContext::moment_of(): a later term counts about the same.
  void add(Time then, Duration forgiven_after);
  [[nodiscard]] std::uint32_t count() const { return count_; }

 private:
  std::uint32_t count_ = 0;
  std::optional<Time> last_;
};

/// What ran for so long did not fail at once: its failure is a first one.
inline constexpr Duration kLives = std::chrono::seconds(60);

/// Growing, jittered delay before try number `attempt` (1 = after the first failure): 1 s, 2 s, 4 s
/// ... at most 60 s, times 0.75 to 1.25 by `salt`. The same input gives the same delay.
[[nodiscard]] Duration retry_delay(std::uint32_t attempt, std::uint64_t salt);
/// The same after a failure that waiting does not mend: 1 min, 2 min ... at most 10 min. Each try
/// is a login that the host may count against this machine.
[[nodiscard]] Duration final_retry_delay(std::uint32_t attempt);

}  // namespace dt
