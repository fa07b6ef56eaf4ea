#include "core/fleet/fleet_machine.h"

#include <algorithm>

namespace dt {
namespace {

/// In the order of Mark.
constexpr std::string_view kMarks[] = {"",      "BASE",           "ADD_QUEUED",
                                       "ADDED", "REMOVAL_QUEUED", "REMOVED"};

}  // namespace

std::string_view mark_text(Mark mark) { return kMarks[static_cast<std::size_t>(mark)]; }

std::optional<Mark> mark_of(std::string_view text) {
  const auto* known = std::ranges::find(kMarks, text);
  if (known == std::end(kMarks)) return std::nullopt;
  return static_cast<Mark>(known - kMarks);
}

}  // namespace dt
