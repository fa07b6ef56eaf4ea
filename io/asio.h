/// How this project uses Boost.Asio's coroutines. Include it in .cpp files; in headers prefer
/// io/awaitable.h.
///
/// g++ 12 rule (scripts/coroutine_lint.py): in an expression with co_await no braced temporaries
/// and no capturing lambdas: name them on the line above.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "core/base/result.h"
#include "core/base/time.h"
#include "io/awaitable.h"

namespace dt::io {

namespace asio = boost::asio;

/// The completion token of every operation. It returns errors as values:
/// `auto [ec, n] = co_await s.async_read_some(b, tok)`.
inline constexpr auto tok = asio::as_tuple(asio::use_awaitable);

/// When a timer expires that only wakes who waits for it, by cancel().
inline constexpr auto kNever = asio::steady_timer::time_point::max();

/// Waits; ends early when the coroutine is cancelled.
inline awaitable<void> sleep_for(Duration duration) {
  asio::steady_timer timer(co_await asio::this_coro::executor, duration);
  co_await timer.async_wait(tok);
}

/// An Error from an Asio result: "connect: Connection refused".
[[nodiscard]] Error asio_error(const boost::system::error_code& ec, std::string_view doing);

}  // namespace dt::io
