#include "core/job/lost_time.h"

#include <algorithm>

#include "core/job/job_text.h"

namespace dt {

void LostTime::pass(std::size_t members, Time now) {
  if (since_) total_ += (now - *since_) * static_cast<Duration::rep>(members_);
  since_ = now;
  members_ = members;
}

bool LostTime::is_save_due(Time now) {
  constexpr Duration kSaveEvery = std::chrono::seconds(30);
  if (!saved_at_) saved_at_ = now;
  if (now - *saved_at_ < kSaveEvery || total_ <= Duration{}) return false;
  saved_at_ = now;
  return true;
}

Duration LostTime::uncounted_silence(Time since, Time now) {
  const Time from = std::max(since, silence_counted_until_.value_or(since));
  silence_counted_until_ = now;
  return std::max(now - from, Duration{});
}

Duration LostTime::lost() const {
  Duration sum{};
  for (const auto& [cause, time] : lost_) sum += time;
  return sum;
}

std::optional<double> LostTime::goodput() const {
  if (total_ <= Duration{}) return std::nullopt;
  return std::clamp(1 - seconds(lost()) / seconds(total_), 0.0, 1.0);
}

std::string LostTime::summary() const {
  const auto share = goodput();
  if (!share) return "no time yet";
  std::string out = fmt::format("{:.1f} % of {:.0f} worker-seconds", *share * 100, seconds(total_));
  const char* before = "; lost: ";
  for (const auto& [cause, time] : lost_) {
    out += fmt::format("{}{} {:.1f} s", before, cause, seconds(time));
    before = ", ";
  }
  return out;
}

}  // namespace dt
