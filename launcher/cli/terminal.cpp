#include "launcher/cli/terminal.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "io/asio.h"

namespace dt::launcher {
namespace {

using Descriptor = boost::asio::posix::stream_descriptor;

Descriptor copy_of(const boost::asio::any_io_executor& executor, int fd) {
  Descriptor copy(executor);
  boost::system::error_code ignored;  // closed from the start: the first write fails
  const int number = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (number >= 0) copy.assign(number, ignored);
  return copy;
}

}  // namespace

Terminal::Terminal(boost::asio::any_io_executor executor)
    : out_(copy_of(executor, STDOUT_FILENO)), err_(copy_of(executor, STDERR_FILENO)) {}

io::awaitable<bool> Terminal::write(bool is_stderr, std::string bytes) {
  Descriptor& to = is_stderr ? err_ : out_;
  std::string_view rest = bytes;
  while (!rest.empty() && !gone_) {
    // A plain file cannot be waited for; that is an error here, and writing to it does not block.
    co_await to.async_wait(Descriptor::wait_write, io::tok);
    if (!to.is_open()) break;
    const ssize_t n =
        ::write(to.native_handle(), rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF));
    if (n > 0)
      rest.remove_prefix(static_cast<std::size_t>(n));
    else if (errno == EIO || errno == EPIPE || errno == EBADF)
      gone_ = true;
    else if (errno != EINTR && errno != EAGAIN)
      break;  // a full disk loses this text, not the job
  }
  co_return !gone_;
}

void Terminal::say(io::Level level, std::string_view text) {
  pollfd ready = {STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) == 1) io::FdLog(STDERR_FILENO).line(level, text);
}

}  // namespace dt::launcher
