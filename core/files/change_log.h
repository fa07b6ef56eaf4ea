/// The lines of host_worker_log, which old scripts parse:
///
///     <SEQ> ADDED|REMOVED <host> <nanoseconds since 1970>
///
/// SEQ counts from 0 without gaps. The file is a copy of lines in the journal.
#pragma once

#include <cstdint>
#include <string>

#include "core/files/hosts.h"

namespace dt {

/// A line of host_worker_log. It is part of the journal's record of the decision that causes it, so
/// that no crash can part the two.
struct LogLine {
  std::uint64_t seq = 0;
  bool added = false;
  Host host;
  std::int64_t wall_ns = 0;
  friend bool operator==(const LogLine&, const LogLine&) = default;
};

/// The line with its newline. The host by its name only: no user, no port, no brackets.
[[nodiscard]] inline std::string format_change(const LogLine& line) {
  return fmt::format("{} {} {} {}\n", line.seq, line.added ? "ADDED" : "REMOVED", line.host.name,
                     line.wall_ns);
}

}  // namespace dt
