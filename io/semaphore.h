/// A counting semaphore for coroutines of one thread, first come first served.
#pragma once

#include <list>
#include <memory>

#include "io/asio.h"

namespace dt::launcher {

class Slots : public std::enable_shared_from_this<Slots> {
 public:
  Slots(io::asio::any_io_executor executor, std::size_t free)
      : executor_(std::move(executor)), free_(free) {}

  /// A slot, given back on destruction.
  class Held {
   public:
    Held() = default;
    explicit Held(std::shared_ptr<Slots> slots) : slots_(std::move(slots)) {}
    Held(Held&&) noexcept = default;
    Held& operator=(Held&& other) noexcept {
      release();
      slots_ = std::move(other.slots_);
      return *this;
    }
    ~Held() { release(); }
    void release() {
      if (slots_) std::exchange(slots_, nullptr)->give_back();
    }

   private:
    std::shared_ptr<Slots> slots_;
  };

  /// Whether the next one waits.
  [[nodiscard]] bool all_taken() const { return free_ == 0 || !queue_.empty(); }

  io::awaitable<Held> acquire() {
    auto self = shared_from_this();
    if (free_ > 0 && queue_.empty()) {
      --free_;
      co_return Held(std::move(self));
    }
    Turn turn(*this);
    while (!turn.granted) co_await turn.timer.async_wait(io::tok);
    turn.granted = false;
    co_return Held(std::move(self));
  }

 private:
  struct Turn {
    explicit Turn(Slots& s)
        : slots(s), timer(s.executor_, io::asio::steady_timer::time_point::max()) {
      slots.queue_.push_back(this);
    }
    ~Turn() {
      slots.queue_.remove(this);
      if (granted) slots.give_back();  // cancelled between the grant and its use
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Slots& slots;
    io::asio::steady_timer timer;
    bool granted = false;
  };

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

  io::asio::any_io_executor executor_;
  std::size_t free_;
  std::list<Turn*> queue_;
};

}  // namespace dt::launcher
