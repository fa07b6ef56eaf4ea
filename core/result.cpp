#include "core/result.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace dt {

Error errno_error(int number, std::string_view doing) {
  return {ErrorKind::kIo, fmt::format("{}: {}", doing, std::generic_category().message(number))};
}

void check_failed(std::string_view condition, std::string_view why, const char* file, int line) {
  fmt::print(stderr, "{}:{}: internal error: {} ({})\n", file, line, why, condition);
  std::abort();
}

}  // namespace dt
