#include "core/fleet/look_pace.h"

#include <algorithm>
#include <chrono>

namespace dt {

Duration LookPace::after(Look look, Duration longest) {
  constexpr Duration kSoon = std::chrono::seconds(1);
  if (look == Look::kNews) return span_ = kSoon;
  const Duration longer = look == Look::kQuiet ? span_ * 3 / 2 : span_ * 2;
  span_ = std::clamp(longer, kSoon, std::max(longest, kSoon));
  if (look == Look::kQuiet) return span_;
  random_ = random_ * 6364136223846793005U + 1442695040888963407U;  // Knuth's MMIX
  return kSoon + (span_ - kSoon) / 1000 * static_cast<Duration::rep>((random_ >> 33) % 1001);
}

}  // namespace dt
