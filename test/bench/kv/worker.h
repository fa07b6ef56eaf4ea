/// One worker's part of a measurement, the same for all contenders.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "test/bench/kv/control.h"
#include "test/bench/kv/values.h"

namespace dt::bench {

/// A contender's worker. The whole list lies in one buffer, tensor after tensor.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// This worker's contribution, which takes effect by load().
  [[nodiscard]] virtual std::span<float> gradient() = 0;
  /// Where the sum is after fetch(); the same memory as gradient() for an exchange in place.
  [[nodiscard]] virtual std::span<const float> result() = 0;
  /// gradient() was written: copies it to the place that run() reads, if that is elsewhere.
  virtual void load() {}
  /// Copies the result of run() to result(), if it is elsewhere.
  virtual void fetch() {}
  /// One operation over the whole list, with the wait for its end. This is timed.
  virtual void run() = 0;

  /// run(), and the further steps that bring this round's sum into result().
  virtual void run_to_check() { run(); }
  /// Wrong elements of result() after run_to_check() on the values of `round`.
  virtual std::uint64_t count_bad(std::uint32_t workers, std::uint32_t round) {
    return count_wrong(result(), sum_of_ranks(workers), round);
  }
  /// `operations` timed operations were made on the present gradient.
  virtual void was_repeated(std::uint32_t /*operations*/) {}
  /// True if values would grow from operation to operation: timed ones then work on zeros.
  [[nodiscard]] virtual bool grows() { return gradient().data() == result().data(); }
};

/// Returns when every worker has called it.
using Meet = std::function<void()>;

struct Verified {
  std::uint64_t bad = 0;
  double seconds = 0;
};
/// One operation on the values of `round`, the result checked.
[[nodiscard]] Verified verify(Exchange& exchange, std::uint32_t rank, std::uint32_t workers,
                              std::uint32_t round, const Meet& meet);
/// Before every operation one worker is late, each in its turn, as if its computation had taken
/// longer than the others'.
struct Straggle {
  double seconds = 0;
  std::uint32_t rank = 0;
  std::uint32_t workers = 1;

  /// Sleeps if it is this worker's turn.
  void wait(std::size_t operation) const;
};

/// Runs times.size() operations and stores the seconds of each; returns the seconds from the first
/// one's begin to the last one's end, delays included.
[[nodiscard]] double time_operations(Exchange& exchange, std::span<double> times, const Meet& meet,
                                     const Straggle& straggle);

/// Executes the coordinator's orders until kQuit.
void take_part(Control& control, std::uint32_t rank, Exchange& exchange);

/// CLOCK_MONOTONIC.
[[nodiscard]] double now_s();

}  // namespace dt::bench
