#include "core/files/change_log.h"

#include <algorithm>

namespace dt {

std::string format_change(const LogLine& line) {
  return fmt::format("{} {} {} {}\n", line.seq, line.added ? "ADDED" : "REMOVED", line.host.name,
                     line.wall_ns);
}

Result<ChangeLogWork> change_log_work(std::string_view existing,
                                      const std::vector<LogLine>& journalled) {
  ChangeLogWork work;
  std::size_t line = 0;
  for (; work.keep < existing.size(); ++line) {
    const std::string_view rest = existing.substr(work.keep);
    if (line == journalled.size())
      return fail(ErrorKind::kInvalid,
                  "host_worker_log:{}: this line is not this job's; the file is left alone",
                  line + 1);
    const std::string want = format_change(journalled[line]);
    if (rest.starts_with(want)) {
      work.keep += want.size();
    } else if (std::string_view(want).starts_with(rest)) {
      break;
    } else {
      return fail(ErrorKind::kInvalid,
                  "host_worker_log:{}: expected \"{}\", found \"{}\"; the file is left alone",
                  line + 1, want.substr(0, want.size() - 1),
                  rest.substr(0, std::min<std::size_t>(rest.find('\n'), 100)));
    }
  }
  for (; line < journalled.size(); ++line) work.bytes += format_change(journalled[line]);
  return work;
}

}  // namespace dt
