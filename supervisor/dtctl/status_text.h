/// The status object as a table for people.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace dt::supervisor {

/// `json`: see supervisor/control/job_status.h. Fields that are missing are shown as "-". kProtocol
/// when it is no JSON object at all. In long tables rows that say the same are folded (see
/// folded_table.h), unless `is_whole`.
[[nodiscard]] Result<std::string> status_text(std::string_view json, bool is_whole = false);

}  // namespace dt::supervisor
