/// The status object as a table for people.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace dt::supervisor {

/// `json`: see supervisor/control/status.h. Fields that are missing are shown as "-". kProtocol
/// when it is no JSON object at all.
[[nodiscard]] Result<std::string> status_text(std::string_view json);

}  // namespace dt::supervisor
