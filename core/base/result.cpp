#include "core/base/result.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace dt {

Error errno_error(int number, std::string_view doing) {
  // Every program has raised its soft limit to the hard one.
  const std::string_view remedy =
      number == EMFILE ? " (raise the hard limit of open files: ulimit -Hn, "
                         "/etc/security/limits.conf, or LimitNOFILE= of a systemd unit)"
                       : "";
  return {ErrorKind::kIo,
          fmt::format("{}: {}{}", doing, std::generic_category().message(number), remedy)};
}

void check_failed(std::string_view condition, std::string_view why, const char* file, int line) {
  fmt::print(stderr, "{}:{}: internal error: {} ({})\n", file, line, why, condition);
  std::abort();
}

}  // namespace dt
