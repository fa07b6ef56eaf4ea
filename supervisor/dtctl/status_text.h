/// The status object as a table for people.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "io/job/status.h"

namespace dt::supervisor {

/// `json`: see io/job/status.h. Fields that are missing are shown as "-". kProtocol when it is no
/// JSON object at all. In long tables rows that say the same are folded (see folded_table.h),
/// unless `is_whole`.
[[nodiscard]] Result<std::string> status_text(std::string_view json, bool is_whole = false);

/// Why a worker makes no step; empty: it stalls for less than `least` seconds.
[[nodiscard]] std::string stall_text(const io::WorkerStatus& worker, double least);

/// A change of the workers restarts all of them (--on-change restart): there are no boundaries.
[[nodiscard]] inline bool restarts_group(const io::Status& status) {
  return status.on_change == "restart";
}

}  // namespace dt::supervisor
