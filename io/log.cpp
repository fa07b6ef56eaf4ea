#include "io/log.h"

#include <fmt/chrono.h>

#include <chrono>

#include "io/fd.h"
#include "io/line_prefixer.h"

namespace dt::io {

std::string console_line(Level level, std::string_view text) {
  static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
  const auto now = std::chrono::system_clock::now();
  const auto ms =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::string out = fmt::format("{:%Y-%m-%d %H:%M:%S},{:03} {} ",
                                fmt::localtime(std::chrono::system_clock::to_time_t(now)), ms,
                                kNames[static_cast<int>(level)]);
  for (;;) {
    const std::size_t end = text.find('\n');
    out += printable(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out.push_back('\n');
    text.remove_prefix(end + 1);
  }
}

void FdLog::line(Level level, std::string_view text) {
  if (level < least_) return;
  std::string out = console_line(level, text);
  out.push_back('\n');
  write_all(fd_, out);
}

}  // namespace dt::io
