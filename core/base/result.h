/// Errors as values. `Result<T>` for what a caller is expected to handle; `DT_CHECK` for what only
/// a programmer's mistake can break.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>

namespace dt {

enum class ErrorKind {
  kInvalid,      ///< The input is wrong; doing it again will not help.
  kUnavailable,  ///< The other side is not there now; a retry may help.
  kDenied,       ///< Refused: credentials, host key, permission.
  kTimeout,      ///< A deadline passed.
  kIo,           ///< The operating system refused.
  kProtocol,     ///< The peer broke the protocol.
  kClosed,       ///< The peer closed, or we are stopping.
};

/// What failed, where (host, file and line, worker) and what to do, as one sentence for a person.
struct Error {
  ErrorKind kind = ErrorKind::kInvalid;
  std::string message;

  /// The same error with the place in front: "node7: connection refused".
  [[nodiscard]] Error at(std::string_view place) const {
    return {kind, fmt::format("{}: {}", place, message)};
  }
};

template <class T>
using Result = tl::expected<T, Error>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorKind kind, fmt::format_string<Args...> text,
                                         Args&&... args) {
  return tl::unexpected(Error{kind, fmt::format(text, std::forward<Args>(args)...)});
}

/// "open host_worker: Permission denied" from an errno value.
[[nodiscard]] Error errno_error(int number, std::string_view doing);

/// Prints `why` with the place in the source to stderr and aborts. On in every build.
[[noreturn]] void check_failed(std::string_view condition, std::string_view why, const char* file,
                               int line);

}  // namespace dt

#define DT_CHECK(condition, why)                                 \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::dt::check_failed(#condition, (why), __FILE__, __LINE__); \
  } while (false)
