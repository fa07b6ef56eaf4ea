/// Deadlines for waits.
#pragma once

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <utility>

#include "io/asio.h"

namespace dt::io {

/// The result of `work`, or kTimeout with `doing` when it takes longer than `limit`. The work must
/// not throw and must honour cancellation: it is cancelled and waited for.
template <class T>
awaitable<Result<T>> within(Duration limit, awaitable<Result<T>> work, std::string doing) {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer(co_await asio::this_coro::executor, limit);
  auto race = std::move(work) || timer.async_wait(tok);
  auto first = co_await std::move(race);
  if (first.index() == 0) co_return std::move(std::get<0>(first));
  co_return fail(ErrorKind::kTimeout, "{}: nothing within {:.1f} s", doing, seconds(limit));
}

}  // namespace dt::io
