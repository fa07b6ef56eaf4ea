/// The completion of shells. Its text is that of packaging/completions, from when it was
/// configured.
#pragma once

namespace dt::launcher {

/// What bash sources to complete the words of dtlaunch and dtctl.
extern const char* const kBashCompletion;

}  // namespace dt::launcher
