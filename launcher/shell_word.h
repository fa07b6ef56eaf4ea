/// The one place where text is quoted for a shell.
#pragma once

#include <string>
#include <string_view>

namespace dt::launcher {

/// A word for /bin/sh, quoted when it must be.
[[nodiscard]] std::string shell_word(std::string_view text);

}  // namespace dt::launcher
