#include "core/files/change_log.h"

#include <fmt/format.h>

namespace dt {

std::string format_change(const LogLine& line) {
  return fmt::format("{} {} {} {}\n", line.seq, line.added ? "ADDED" : "REMOVED", line.host.name,
                     line.wall_ns);
}

}  // namespace dt
