/// Quantities in messages for people. Times: core/base/time.h.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace dt {

/// "1 worker", "3 workers".
[[nodiscard]] inline std::string count_text(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

/// "43 KB", "812 MB", "3.4 GB"; decimal units.
[[nodiscard]] inline std::string bytes_text(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.0f} KB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.0f} MB", bytes / 1e6);
  return fmt::format("{:.1f} GB", bytes / 1e9);
}

}  // namespace dt
