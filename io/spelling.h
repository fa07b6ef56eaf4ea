/// How near a mistyped word is to one that is known.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dt::io {

/// The one of `names` that `word` was most likely meant to be; none when no name is near. A word is
/// near a name that begins with it, or that it differs from by a mistake or two, by length.
[[nodiscard]] std::optional<std::string> nearest_name(std::string_view word,
                                                      const std::vector<std::string>& names);

}  // namespace dt::io
