/// The signals by which people end a program: Ctrl-C, TERM, and HUP, unless nohup has it ignored.
#pragma once

#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <optional>

namespace dt::io {

inline void add_stop_signals(boost::asio::signal_set& signals) {
  struct sigaction present {};
  signals.add(SIGINT);
  signals.add(SIGTERM);
  if (::sigaction(SIGHUP, nullptr, &present) == 0 && present.sa_handler != SIG_IGN)
    signals.add(SIGHUP);
}

/// For a program whose end is decided.
inline void ignore_stop_signals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_IGN);
}

/// For a program that outlives every terminal.
inline void ignore_hangup() { ::signal(SIGHUP, SIG_IGN); }

/// Tells a person's next order from the same one by another way: wrappers (uv, npm) forward a
/// signal that the terminal has sent to their child, too, and a shell forwards HUP beside TERM.
class StopOrders {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// What comes sooner after the one before is the same order; a person needs longer.
  static constexpr std::chrono::milliseconds kSame{200};

  /// Whether the signal that has come now is an order of its own.
  bool is_new(Time now) {
    const bool is_same = last_ && now - *last_ < kSame;
    last_ = now;
    return !is_same;
  }

 private:
  std::optional<Time> last_;
};

}  // namespace dt::io
