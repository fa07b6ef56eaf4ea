/// The supervisor's loop in large jobs: it rests between its turns, so that one turn reads what
/// many hosts have sent. A turn costs more than the few messages that it finds: most of a
/// supervisor's time at a thousand hosts was waking up.
#pragma once

#include "core/base/time.h"
#include "io/awaitable.h"

namespace boost::asio {
class io_context;
}

namespace dt::supervisor {

/// When the loop rests: when its turns come faster than kTurns a second for a while. A job of a
/// hundred hosts never gets there, and a burst of events (a boundary, a start) is not slowed. Pure.
class TurnPace {
 public:
  static constexpr int kTurns = 250;  ///< Per second.
  static constexpr int kBurst = 500;  ///< Turns beyond that rate, since the last rest.
  static constexpr Duration kRest = std::chrono::milliseconds(4);

  /// After a turn that ended `now`: how long to rest. Not after `now` of the next call.
  [[nodiscard]] Duration after_turn(Time now);

 private:
  static constexpr Duration kTurn = Duration(std::chrono::seconds(1)) / kTurns;

  /// When all turns so far would have ended at kTurns a second.
  Time paid_until_{};
};

/// Runs `context` at that pace until `work` has ended, whatever else it has; returns or throws what
/// that does.
[[nodiscard]] int run_paced(boost::asio::io_context& context, io::awaitable<int> work);

}  // namespace dt::supervisor
