#include "kvstore/bench/worker.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

namespace dt::bench {

Result<Verified> verify(Exchange& exchange, std::uint32_t rank, std::uint32_t workers,
                        std::uint32_t round, const Meet& meet) {
  fill(exchange.gradient(), rank, round);
  if (auto loaded = exchange.load(); !loaded) return tl::unexpected(loaded.error());
  if (auto met = meet(); !met) return tl::unexpected(met.error());
  const double begin = now_s();
  if (auto done = exchange.run_to_check(); !done) return tl::unexpected(done.error());
  Verified verified;
  verified.seconds = now_s() - begin;
  if (auto fetched = exchange.fetch(); !fetched) return tl::unexpected(fetched.error());
  verified.bad = exchange.count_bad(workers, round);
  // No worker pushes the next round while another reads this one.
  if (auto met = meet(); !met) return tl::unexpected(met.error());
  return verified;
}

void Straggle::wait(std::size_t operation) const {
  if (seconds <= 0 || operation % workers != rank) return;
  const double whole = std::floor(seconds);
  timespec left{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

Result<double> time_operations(Exchange& exchange, std::span<double> times, const Meet& meet,
                               const Straggle& straggle) {
  if (exchange.grows()) {
    std::ranges::fill(exchange.gradient(), 0.0F);
    if (auto loaded = exchange.load(); !loaded) return tl::unexpected(loaded.error());
  }
  if (auto met = meet(); !met) return tl::unexpected(met.error());
  const double begin = now_s();
  double last = begin;
  for (std::size_t i = 0; i < times.size(); ++i) {
    straggle.wait(i);
    if (auto done = exchange.run(); !done) return tl::unexpected(done.error());
    const double now = now_s();
    times[i] = now - last;
    last = now;
  }
  exchange.was_repeated(static_cast<std::uint32_t>(times.size()));
  return last - begin;
}

double now_s() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Result<void> take_part(Control& control, std::uint32_t rank, Exchange& exchange) {
  const Meet meet = [&control]() -> Result<void> {
    control.meet();
    return {};
  };
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
        const auto found = verify(exchange, rank, control.workers(), command.round, meet);
        if (!found) return tl::unexpected(found.error());
        bad = found->bad;
        break;
      }
      case Order::kTime: {
        const auto times = control.times(rank).first(command.operations);
        const auto took =
            time_operations(exchange, times, meet, {command.straggle, rank, control.workers()});
        if (!took) return tl::unexpected(took.error());
        elapsed = *took;
        break;
      }
      case Order::kTimeVerified:
        for (std::uint32_t i = 0; i < command.operations; ++i) {
          const auto found = verify(exchange, rank, control.workers(), command.round + i, meet);
          if (!found) return tl::unexpected(found.error());
          control.times(rank)[i] = found->seconds;
          bad += found->bad;
          elapsed += found->seconds;
        }
        break;
    }
    control.done(rank, elapsed, bad);
  }
}

}  // namespace dt::bench
