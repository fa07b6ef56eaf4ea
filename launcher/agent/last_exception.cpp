#include "launcher/agent/last_exception.h"

#include <algorithm>

#include "io/line_prefixer.h"

namespace dt::launcher {
namespace {

/// Without what stands before each line of an exception group ("  | "), or of PyTorch's ranks
/// ("[rank0]: ").
std::string_view without_margin(std::string_view line) {
  constexpr std::string_view kBar = "| ";
  constexpr std::string_view kRank = "]: ";
  if (line.starts_with("[rank"))
    if (const auto at = line.find(kRank); at != line.npos) line.remove_prefix(at + kRank.size());
  const std::size_t at = std::min(line.find_first_not_of(' '), line.size());
  return at > 0 && line.substr(at).starts_with(kBar) ? line.substr(at + kBar.size()) : line;
}

/// Not in the middle of a character.
std::string shortened(std::string_view line) {
  constexpr std::size_t kMost = 200;
  if (line.size() <= kMost) return std::string(line);
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xc0) == 0x80) --end;
  return std::string(line.substr(0, end));
}

}  // namespace

std::string last_exception(std::string_view errors) {
  std::string_view found;
  bool is_below_frames = false;  // where the exception's own line comes
  bool is_ignored = false;       // by the interpreter, which goes on
  while (!errors.empty()) {
    const std::size_t end = std::min(errors.find('\n'), errors.size());
    const std::string_view line = without_margin(errors.substr(0, end));
    errors.remove_prefix(std::min(end + 1, errors.size()));
    if (line.starts_with("Exception ignored ")) is_ignored = true;
    if (line.starts_with("Traceback (most recent") || line.starts_with("  File \"")) {
      is_below_frames = true;
    } else if (is_below_frames && !line.empty() && line.front() != ' ') {
      if (!is_ignored) found = line;
      is_below_frames = is_ignored = false;
    }
  }
  return shortened(io::plain(found));
}

}  // namespace dt::launcher
