/// The lines of host_worker_log, which old scripts parse:
///
///     <SEQ> ADDED|REMOVED <host> <nanoseconds since 1970>
///
/// SEQ counts from 0 without gaps. The file is a copy of lines in the journal; these functions
/// compute what it still lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/wire.h"
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
[[nodiscard]] std::string format_change(const LogLine& line);

/// What to do with the file: cut it to `keep` bytes if it is longer, then append `bytes`.
struct ChangeLogWork {
  std::uint64_t keep = 0;
  std::string bytes;
};

/// `existing`: the file's bytes (empty if there is none), `journalled`: every line from SEQ 0 on.
/// A last line that was written in part is cut and written again. Any other difference from the
/// journal is a change by others: kInvalid names the line and the file is to be left alone.
[[nodiscard]] Result<ChangeLogWork> change_log_work(std::string_view existing,
                                                    const std::vector<LogLine>& journalled);

}  // namespace dt
