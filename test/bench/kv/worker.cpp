#include "test/bench/kv/worker.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <ctime>

namespace dt::bench {

Verified verify(Exchange& exchange, std::uint32_t rank, std::uint32_t workers, std::uint32_t round,
                const Meet& meet) {
  fill(exchange.gradient(), rank, round);
  exchange.load();
  meet();
  const double begin = now_s();
  exchange.run_to_check();
  Verified verified;
  verified.seconds = now_s() - begin;
  exchange.fetch();
  verified.bad = exchange.count_bad(workers, round);
  // No worker pushes the next round while another reads this one.
  meet();
  return verified;
}

void Straggle::wait(std::size_t operation) const {
  if (seconds <= 0 || operation % workers != rank) return;
  const double whole = std::floor(seconds);
  timespec left{static_cast<time_t>(whole), static_cast<long>((seconds - whole) * 1e9)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR) {
  }
}

double time_operations(Exchange& exchange, std::span<double> times, const Meet& meet,
                       const Straggle& straggle) {
  if (exchange.grows()) {
    std::ranges::fill(exchange.gradient(), 0.0F);
    exchange.load();
  }
  meet();
  const double begin = now_s();
  double last = begin;
  for (std::size_t i = 0; i < times.size(); ++i) {
    straggle.wait(i);
    exchange.run();
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

void take_part(Control& control, std::uint32_t rank, Exchange& exchange) {
  const std::uint32_t workers = control.workers();
  const Meet meet = [&control] { control.meet(); };
  control.ready(rank);
  for (;;) {
    const Command command = control.next();
    const auto times = control.times(rank).first(command.operations);
    Verified all;
    switch (command.order) {
      case Order::kQuit:
        return;
      case Order::kTime:
        all.seconds = time_operations(exchange, times, meet, {command.straggle, rank, workers});
        break;
      case Order::kVerify:
        for (std::uint32_t i = 0; i < command.operations; ++i) {
          const Verified one = verify(exchange, rank, workers, command.round + i, meet);
          times[i] = one.seconds;
          all.bad += one.bad;
          all.seconds += one.seconds;
        }
        break;
    }
    control.done(rank, all.seconds, all.bad);
  }
}

}  // namespace dt::bench
