/// Blocking calls (getaddrinfo, a slow ssh-agent) on a few threads, awaited on the loop. Threads
/// share no data with the loop: work gets copies, and its result returns by post.
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "io/asio.h"

namespace dt::io {

/// Must be destroyed before the loop. Destroying waits for work that has begun.
class ThreadPool {
 public:
  explicit ThreadPool(std::size_t threads) : threads_(threads) {}
  ~ThreadPool() {
    if (pool_) {
      pool_->stop();
      pool_->join();
    }
  }

  /// The result of `work`. Waits for it even when the coroutine is cancelled, so that `work` may
  /// use the caller's objects.
  template <class T>
  awaitable<T> finish(std::function<T()> work) {
    auto pending = start(co_await asio::this_coro::executor, std::move(work));
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!pending->value) co_await pending->done.async_wait(tok);
    co_await asio::this_coro::throw_if_cancelled(throws);
    co_return std::move(*pending->value);
  }

  /// The same with a deadline, which begins with the work: those that it waits for in the queue
  /// have theirs. After it the work's result is discarded.
  template <class T>
  awaitable<Result<T>> finish_within(Duration limit, std::function<Result<T>()> work,
                                     std::string doing) {
    auto pending = start(co_await asio::this_coro::executor, std::move(work));
    while (!pending->has_begun) co_await pending->done.async_wait(tok);
    if (!pending->value) {
      pending->done.expires_after(limit);
      co_await pending->done.async_wait(tok);
    }
    if (!pending->value)
      co_return fail(ErrorKind::kTimeout, "{}: nothing within {:.1f} s", doing, seconds(limit));
    co_return std::move(*pending->value);
  }

 private:
  template <class T>
  struct Pending {
    explicit Pending(const asio::any_io_executor& executor) : done(executor, kNever) {}
    bool has_begun = false;
    std::optional<T> value;
    asio::steady_timer done;  ///< Cancelled when one of these changes.
  };

  template <class T>
  std::shared_ptr<Pending<T>> start(asio::any_io_executor loop, std::function<T()> work) {
    if (!pool_) pool_.emplace(threads_);
    auto pending = std::make_shared<Pending<T>>(loop);
    asio::post(*pool_, [pending, loop, work = std::move(work)] {
      asio::post(loop, [pending] {
        pending->has_begun = true;
        pending->done.cancel();
      });
      auto value = std::make_shared<T>(work());
      asio::post(loop, [pending, value] {
        pending->value.emplace(std::move(*value));
        pending->done.cancel();
      });
    });
    return pending;
  }

  std::size_t threads_;
  std::optional<asio::thread_pool> pool_;
};

}  // namespace dt::io
