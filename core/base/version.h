/// What `--version` says. A library of its own (dt_version), linked by programs only, so that a
/// new commit rebuilds one small file.
#pragma once

#include <string>
#include <string_view>

namespace dt {

/// "dtlaunch 0.1.0 (commit 1a2b3c4d5e6f)" and, on lines of their own, the compiler and the
/// libraries it was built with.
[[nodiscard]] std::string version_text(std::string_view program);

/// "0.1.0+1a2b3c4d5e6f": equal on two programs only if they were built from the same commit.
[[nodiscard]] std::string_view build_id();

}  // namespace dt
