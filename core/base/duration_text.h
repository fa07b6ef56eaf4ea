/// Durations for people.
#pragma once

#include <fmt/format.h>

#include <string>

namespace dt::supervisor {

/// "12 s", "3 min 04 s", "5 h 02 min", "3 d 07 h"; parts of a second are cut off.
[[nodiscard]] inline std::string duration_text(double seconds) {
  const auto s = static_cast<long>(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  if (s < 48 * 3600) return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
  return fmt::format("{} d {:02} h", s / 86400, s / 3600 % 24);
}

}  // namespace dt::supervisor
