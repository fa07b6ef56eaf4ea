#include "core/job/retry.h"

#include <algorithm>

namespace dt {

void Failures::add(Time then, Duration forgiven_after) {
  if (forgiven_after > Duration{} && last_ && then > *last_) {
    const auto forgiven = static_cast<std::uint64_t>((then - *last_) / forgiven_after);
    count_ -= static_cast<std::uint32_t>(std::min<std::uint64_t>(forgiven, count_));
  }
  ++count_;
  last_ = then;
}

Duration retry_delay(std::uint32_t attempt, std::uint64_t salt) {
  using namespace std::chrono_literals;
  const std::uint32_t doublings = std::min(attempt > 0 ? attempt - 1 : 0U, 6U);
  const Duration plain = std::min<Duration>(1s * (1 << doublings), 60s);
  std::uint64_t mixed = (salt + attempt) * 0x9e3779b97f4a7c15U;
  mixed ^= mixed >> 32;
  const auto percent = static_cast<Duration::rep>(75 + mixed % 51);
  return plain / 100 * percent;
}

Duration final_retry_delay(std::uint32_t attempt) {
  using namespace std::chrono_literals;
  const std::uint32_t doublings = std::min(attempt > 0 ? attempt - 1 : 0U, 4U);
  return std::min<Duration>(1min * (1 << doublings), 10min);
}

}  // namespace dt
