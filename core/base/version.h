/// The text of `--version`. A library of its own (dt_version), linked by programs only, so that a
/// new commit rebuilds one small file.
#pragma once

#include <string>
#include <string_view>

namespace dt {

/// "dtlaunch VERSION (commit 1a2b3c4d5e6f)" and, on lines of their own, the compiler and the
/// libraries it was built with.
[[nodiscard]] std::string version_text(std::string_view program);

}  // namespace dt
