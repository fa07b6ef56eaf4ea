/// When a fleet's provider is asked for its list again: soon after news, then more and more seldom;
/// after trouble at a random moment of a growing span, so that many jobs do not ask in step. Pure.
#pragma once

#include <cstdint>

#include "core/base/time.h"

namespace dt {

class LookPace {
 public:
  enum class Look { kNews, kQuiet, kTrouble };

  explicit LookPace(std::uint64_t seed) : random_(seed) {}
  /// The pause after a look that ended so: a second at least, and `longest` at most.
  [[nodiscard]] Duration after(Look look, Duration longest);

 private:
  std::uint64_t random_;
  Duration span_{};
};

}  // namespace dt
