/// What a discovery script prints, as Horovod's --host-discovery-script does:
///
///     line = host [ ":" slots ] [ "leave=" SECONDS ]
///
/// Blank lines and comments (#) are harmless. Pure text work.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/fleet/fleet_machine.h"

namespace dt {

/// A machine for each line, ready, or ending where it says leave=: `now` (seconds since 1970) and
/// those seconds are its deadline. Its id is its host. kProtocol: no host, a host twice, a word
/// that is none of these; of such output no part counts.
[[nodiscard]] Result<std::vector<Machine>> parse_discovered(std::string_view text, double now);

}  // namespace dt
