#include "core/files/change_log.h"

#include <optional>

#include "core/base/number.h"

namespace dt {
namespace {

/// Cuts the first word off `rest` at a single blank.
std::string_view word(std::string_view& rest) {
  const std::size_t end = std::min(rest.find(' '), rest.size());
  const std::string_view out = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return out;
}

}  // namespace

std::string format_change(const LogLine& line) {
  return fmt::format("{} {} {} {}\n", line.seq, line.added ? "ADDED" : "REMOVED", line.host.name,
                     line.wall_ns);
}

Result<LogLine> parse_change(std::string_view line) {
  std::string_view rest = line;
  const auto seq = parse_number<std::uint64_t>(word(rest));
  const std::string_view what = word(rest);
  const std::string_view host = word(rest);
  const auto wall_ns = parse_number<std::int64_t>(rest);
  if (seq && wall_ns && (what == "ADDED" || what == "REMOVED") && !host.empty()) {
    LogLine out{*seq, what == "ADDED", {"", std::string(host), 0}, *wall_ns};
    std::string again = format_change(out);
    again.pop_back();
    if (again == line) return out;
  }
  return fail(ErrorKind::kInvalid,
              "\"{}\" is not \"<SEQ> ADDED|REMOVED <host> <nanoseconds since 1970>\"",
              line.substr(0, 100));
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
