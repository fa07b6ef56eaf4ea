/// The Python exception that ended a process, as its interpreter printed it.
#pragma once

#include <string>
#include <string_view>

namespace dt::launcher {

/// The first line of the last exception in `errors`, the end of what a process wrote to stderr:
/// "ValueError: no such batch". At most 200 bytes; empty: there is none.
[[nodiscard]] std::string last_exception(std::string_view errors);

}  // namespace dt::launcher
