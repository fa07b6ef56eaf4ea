/// The two notions of time, and durations as numbers and text. Nothing here reads a clock.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <string>

namespace dt {

using Duration = std::chrono::nanoseconds;

/// The axis of `Time`: steady nanoseconds from an origin the shell chooses. It has no `now()`:
/// pure code gets the time as an argument.
struct JobClock {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<JobClock>;
  static constexpr bool is_steady = true;
};
using Time = JobClock::time_point;

/// The moment of an event by three clocks: `at` for deadlines of the job's own, which may stand;
/// `wall_ns` (since 1970), which may step, for what people read and for later terms; `steady`,
/// which does neither, for deadlines that others set.
struct Instant {
  Time at;
  std::int64_t wall_ns = 0;
  Time steady{};
};

[[nodiscard]] inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
/// Whole ones, as messages have them.
[[nodiscard]] inline std::uint32_t milliseconds(Duration d) {
  return static_cast<std::uint32_t>(d / std::chrono::milliseconds(1));
}
[[nodiscard]] inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// "12 s", "3 min 04 s", "5 h 02 min", "3 d 07 h"; parts of a second are cut off.
[[nodiscard]] inline std::string duration_text(double seconds) {
  const auto s = static_cast<long>(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 48 * 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

}  // namespace dt
