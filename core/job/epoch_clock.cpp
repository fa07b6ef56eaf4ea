#include "core/job/epoch_clock.h"

#include <algorithm>

namespace dt {

void EpochClock::epoch_begins(Time now) {
  if (began_) last_ = now - *began_;
  if (step_) {
    last_steps_ = *step_ - before_;
    last_step_ = *step_;
  }
  began_ = now;
  step_.reset();
}

void EpochClock::at_step(std::uint64_t step, Time now) {
  if (!step_) before_ = step < last_step_ ? 0 : last_step_;
  if (step_ && step <= *step_) return;
  step_ = step;
  stepped_at_ = now;
}

std::optional<Duration> EpochClock::left(Time now) const {
  if (!began_) return std::nullopt;
  std::optional<Duration> whole = last_;
  const std::uint64_t steps = announced_ > 0 ? announced_ : last_steps_;
  if (const std::uint64_t done = step_ ? *step_ - before_ : 0; done > 0 && steps > 0)
    whole = from_seconds(seconds(stepped_at_ - *began_) / static_cast<double>(done) *
                         static_cast<double>(steps));
  if (!whole) return std::nullopt;
  return std::max(Duration{}, *began_ + *whole - now);
}

}  // namespace dt
