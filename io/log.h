/// Where a program's own lines go. Passed in, never a global.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace dt::io {

enum class Level { kDebug, kInfo, kWarning, kError };

class Log {
 public:
  virtual ~Log() = default;
  /// One line, without its newline. Any thread.
  virtual void line(Level level, std::string_view text) = 0;

  template <class... A>
  void info(fmt::format_string<A...> text, A&&... a) {
    line(Level::kInfo, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  void warn(fmt::format_string<A...> text, A&&... a) {
    line(Level::kWarning, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  void error(fmt::format_string<A...> text, A&&... a) {
    line(Level::kError, fmt::format(text, std::forward<A>(a)...));
  }
};

/// "2018-11-16 22:46:47,496 INFO text": the format of the 2018 launcher. Local time. The text may
/// come from outside: control characters are shown as \xNN.
[[nodiscard]] std::string console_line(Level level, std::string_view text);

/// Writes console lines to a descriptor (not owned), one write each.
class FdLog final : public Log {
 public:
  explicit FdLog(int fd, Level least = Level::kInfo) : fd_(fd), least_(least) {}
  void line(Level level, std::string_view text) override;

 private:
  int fd_;
  Level least_;
};

}  // namespace dt::io
