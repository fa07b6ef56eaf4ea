#include "supervisor/control/changes.h"

#include <boost/asio/experimental/awaitable_operators.hpp>

namespace dt::supervisor {

Changes::Changes(io::asio::any_io_executor executor)
    : noted_(std::move(executor), io::asio::steady_timer::time_point::max()) {}

void Changes::note() {
  ++number_;
  noted_.cancel();
}

io::awaitable<std::uint64_t> Changes::after(std::uint64_t seen, Duration limit) {
  using namespace io::asio::experimental::awaitable_operators;
  if (number_ == seen) {
    io::asio::steady_timer late(co_await io::asio::this_coro::executor, limit);
    auto first = noted_.async_wait(io::tok) || late.async_wait(io::tok);
    co_await std::move(first);
  }
  co_return number_;
}

}  // namespace dt::supervisor
