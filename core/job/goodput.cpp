#include "core/job/goodput.h"

#include <algorithm>

namespace dt {

void Goodput::pass(std::size_t members, Time now) {
  if (since_) total_ += (now - *since_) * static_cast<Duration::rep>(members_);
  since_ = now;
  members_ = members;
}

Duration Goodput::lost() const {
  Duration sum{};
  for (const auto& [cause, time] : lost_) sum += time;
  return sum;
}

std::optional<double> Goodput::share() const {
  if (total_ <= Duration{}) return std::nullopt;
  return std::clamp(1 - seconds(lost()) / seconds(total_), 0.0, 1.0);
}

std::string Goodput::summary() const {
  const auto good = share();
  if (!good) return "no time yet";
  std::string out = fmt::format("{:.1f} % of {:.0f} worker-seconds", *good * 100, seconds(total_));
  const char* before = "; lost: ";
  for (const auto& [cause, time] : lost_) {
    out += fmt::format("{}{} {:.1f} s", before, cause, seconds(time));
    before = ", ";
  }
  if (lost_.contains(kRestartCause)) out += " (without what the command repeats after a restart)";
  return out;
}

}  // namespace dt
