/// Why a host has no worker, or a worker that is no member: `dtctl why HOST`.
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/files/hosts.h"

namespace dt::supervisor {

/// `json`: see supervisor/control/status.h. Says the state of the host and of its workers, which
/// check failed with its words, when it is tried again, and what would make it pass. A host without
/// user and port means the only one of that name. kInvalid when the job does not know it.
[[nodiscard]] Result<std::string> why_text(std::string_view json, const Host& host);

}  // namespace dt::supervisor
