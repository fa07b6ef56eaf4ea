/// This machine's clocks, for callers that pass the time to pure code.
#pragma once

#include "core/base/time.h"

namespace dt::io {

[[nodiscard]] inline Time steady_now() {
  return Time(std::chrono::steady_clock::now().time_since_epoch());
}

/// Nanoseconds since 1970.
[[nodiscard]] inline std::int64_t wall_now() {
  return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace dt::io
