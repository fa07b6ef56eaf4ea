/// Why a host has no worker, or a worker that is no member: `dtctl why HOST`.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/files/hosts.h"

namespace dt::supervisor {

/// `json`: see io/job/status.h. Describes the state of the host and of its workers,
/// the failed check with its message, the time of the next try, and how to make it pass. A host
/// without user and port means the only one of that name. kInvalid if the job does not know it.
[[nodiscard]] Result<std::string> why_text(std::string_view json, const Host& host);

}  // namespace dt::supervisor
