#include "io/process_end.h"

#include <poll.h>

#include "io/asio.h"
#include "io/process_tree.h"

namespace dt::io {

awaitable<bool> process_ended(asio::posix::stream_descriptor& pidfd) {
  for (;;) {
    auto [ec] = co_await pidfd.async_wait(asio::posix::stream_descriptor::wait_read, tok);
    if (ec) co_return false;
    pollfd state{pidfd.native_handle(), POLLIN, 0};
    if (::poll(&state, 1, 0) == 1) co_return true;
  }
}

awaitable<Result<ExitStatus>> end_of(Subprocess& child) {
  Fd pidfd = open_pidfd(child.pid());
  if (!pidfd) co_return tl::unexpected(errno_error(errno, "watch a program (pidfd_open)"));
  asio::posix::stream_descriptor end(co_await asio::this_coro::executor, pidfd.release());
  const bool has_ended = co_await process_ended(end);
  if (!has_ended) co_return fail(ErrorKind::kClosed, "the wait for a program was given up");
  co_return child.wait();
}

}  // namespace dt::io
