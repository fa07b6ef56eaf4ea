/// Any bytes as host_worker_log: the file is completed to exactly the journal's lines, or not
/// changed.

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/change_log.h"
#include "test/fuzz/target.h"

using namespace dt;

/// The input: lines of the journal, a NUL, the file.
DT_FUZZ_TARGET(change_log)
(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view in(reinterpret_cast<const char*>(bytes), size);
  const std::size_t nul = in.find('\0');
  std::string_view text = in.substr(0, nul);
  std::vector<LogLine> journalled;
  std::string whole;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    std::istringstream words{std::string(line)};
    LogLine change;
    std::string what;
    if (!(words >> change.seq >> what >> change.host.name >> change.wall_ns)) continue;
    change.added = what == "ADDED";
    journalled.push_back(change);
    whole += format_change(change);
  }
  const std::string_view file = nul == in.npos ? in : in.substr(nul + 1);
  const auto work = change_log_work(file, journalled);
  if (!work) return 0;
  DT_CHECK(work->keep <= file.size(), "more of the file is kept than there is");
  DT_CHECK(std::string(file.substr(0, work->keep)) + work->bytes == whole,
           "the file is what the journal says");
  return 0;
}
