#include "supervisor/paced_loop.h"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "io/asio.h"
#include "io/clock.h"

namespace dt::supervisor {

Duration TurnPace::after_turn(Time now) {
  paid_until_ = std::max(paid_until_, now) + kTurn;
  const bool is_beyond = paid_until_ - now > kBurst * kTurn;
  return is_beyond ? kRest : Duration{};
}

int run_paced(boost::asio::io_context& context, io::awaitable<int> work) {
  int result = 0;
  std::exception_ptr failure;
  io::asio::co_spawn(context, std::move(work), [&](std::exception_ptr error, int value) {
    failure = error;
    result = value;
    context.stop();
  });
  TurnPace pace;
  while (context.run_one() > 0) {
    context.poll();
    if (const Duration rest = pace.after_turn(io::steady_now()); rest > Duration{})
      std::this_thread::sleep_for(rest);  // tidy: allow (messages gather meanwhile)
  }
  if (failure) std::rethrow_exception(failure);
  return result;
}

}  // namespace dt::supervisor
