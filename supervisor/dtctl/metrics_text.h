/// The status object as metrics, in the text format of Prometheus.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"

namespace dt::supervisor {

/// `json`: see io/job/status.h. Every sample has the label job_id; fields that are
/// missing have none. Units are seconds and bytes, shares are from 0 to 1. Counters begin at zero
/// with each supervisor of the job, or with each worker. kProtocol when it is no JSON object.
[[nodiscard]] Result<std::string> metrics_text(std::string_view json);

}  // namespace dt::supervisor
