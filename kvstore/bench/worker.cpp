#include "kvstore/bench/worker.h"

#include <algorithm>
#include <ctime>

namespace dt::bench {

namespace {

/// One operation on the values of `round`, everybody's result checked.
Result<std::uint64_t> verify(Control& control, std::uint32_t rank, Exchange& exchange,
                             std::uint32_t round, double* seconds = nullptr) {
  fill(exchange.gradient(), rank, round);
  control.meet();
  const double begin = now_s();
  if (auto done = exchange.run_to_check(); !done) return tl::unexpected(done.error());
  if (seconds) *seconds = now_s() - begin;
  const std::uint64_t bad = exchange.count_bad(control.workers(), round);
  control.meet();  // nobody pushes the next round while another reads this one
  return bad;
}

Result<double> time(Control& control, std::uint32_t rank, Exchange& exchange,
                    std::uint32_t operations) {
  if (exchange.grows()) std::ranges::fill(exchange.gradient(), 0.0F);
  const auto times = control.times(rank);
  control.meet();
  const double begin = now_s();
  double last = begin;
  for (std::uint32_t i = 0; i < operations; ++i) {
    if (auto done = exchange.run(); !done) return tl::unexpected(done.error());
    const double now = now_s();
    times[i] = now - last;
    last = now;
  }
  exchange.was_repeated(operations);
  return last - begin;
}

}  // namespace

double now_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Result<void> take_part(Control& control, std::uint32_t rank, Exchange& exchange) {
  control.ready(rank);
  for (;;) {
    const Command command = control.next();
    double elapsed = 0;
    std::uint64_t bad = 0;
    switch (command.order) {
      case Order::kNothing:
        break;
      case Order::kQuit:
        return {};
      case Order::kVerify: {
        const auto found = verify(control, rank, exchange, command.round);
        if (!found) return tl::unexpected(found.error());
        bad = *found;
        break;
      }
      case Order::kTime: {
        const auto took = time(control, rank, exchange, command.operations);
        if (!took) return tl::unexpected(took.error());
        elapsed = *took;
        break;
      }
      case Order::kTimeVerified:
        for (std::uint32_t i = 0; i < command.operations; ++i) {
          double* seconds = &control.times(rank)[i];
          const auto found = verify(control, rank, exchange, command.round + i, seconds);
          if (!found) return tl::unexpected(found.error());
          bad += *found;
          elapsed += *seconds;
        }
        break;
    }
    control.done(rank, elapsed, bad);
  }
}

}  // namespace dt::bench
