/// A counting semaphore for coroutines of one thread, first come first served.
#pragma once

#include <list>
#include <memory>

#include "io/asio.h"

namespace dt::io {

class Semaphore : public std::enable_shared_from_this<Semaphore> {
 public:
  Semaphore(asio::any_io_executor executor, std::size_t free)
      : executor_(std::move(executor)), free_(free) {}

  /// Given back with the last copy of it.
  using Permit = std::shared_ptr<void>;

  /// Whether the next acquire() waits.
  [[nodiscard]] bool all_taken() const { return free_ == 0 || !queue_.empty(); }

  awaitable<Permit> acquire() {
    const auto self = shared_from_this();
    if (free_ > 0 && queue_.empty()) {
      --free_;
      co_return permit();
    }
    Turn turn(*this);
    while (!turn.granted) co_await turn.timer.async_wait(tok);
    turn.granted = false;
    co_return permit();
  }

 private:
  struct Turn {
    explicit Turn(Semaphore& s) : semaphore(s), timer(s.executor_, kNever) {
      semaphore.queue_.push_back(this);
    }
    ~Turn() {
      semaphore.queue_.remove(this);
      if (granted) semaphore.give_back();  // cancelled between the grant and its use
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Semaphore& semaphore;
    asio::steady_timer timer;
    bool granted = false;
  };

  Permit permit() {
    return {this, [self = shared_from_this()](void*) { self->give_back(); }};
  }

  void give_back() {
    if (queue_.empty()) {
      ++free_;
      return;
    }
    Turn* next = queue_.front();
    queue_.pop_front();
    next->granted = true;
    next->timer.cancel();
  }

  asio::any_io_executor executor_;
  std::size_t free_;
  std::list<Turn*> queue_;
};

}  // namespace dt::io
