/// One worker's part of a measurement, the same for everything that is compared.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/base/result.h"
#include "kvstore/bench/control.h"
#include "kvstore/bench/values.h"

namespace dt::bench {

/// A worker of whatever is measured. The whole list lies in one buffer, tensor after tensor.
class Exchange {
 public:
  virtual ~Exchange() = default;

  /// What this worker contributes, once load() has been called.
  [[nodiscard]] virtual std::span<float> gradient() = 0;
  /// Where the sum is after fetch(); the same memory as gradient() for an exchange in place.
  [[nodiscard]] virtual std::span<const float> result() = 0;
  /// gradient() was written: brings it to where run() takes it from, if that is elsewhere.
  virtual Result<void> load() { return {}; }
  /// Brings to result() what run() made, if that is elsewhere.
  virtual Result<void> fetch() { return {}; }
  /// One operation over the whole list, begun and waited for. This is what is timed.
  virtual Result<void> run() = 0;

  /// run(), and what else brings the sum of this round into result().
  virtual Result<void> run_to_check() { return run(); }
  /// Wrong elements of result() after run_to_check() on the values of `round`.
  virtual std::uint64_t count_bad(std::uint32_t workers, std::uint32_t round) {
    return count_wrong(result(), workers, round);
  }
  /// `operations` timed operations were made on the present gradient.
  virtual void was_repeated(std::uint32_t /*operations*/) {}
  /// True if values would grow from operation to operation: timed ones then work on zeros.
  [[nodiscard]] virtual bool grows() { return gradient().data() == result().data(); }
};

/// Returns when every worker has called it.
using Meet = std::function<Result<void>()>;

struct Verified {
  std::uint64_t bad = 0;
  double seconds = 0;
};
/// One operation on the values of `round`, the result checked.
[[nodiscard]] Result<Verified> verify(Exchange& exchange, std::uint32_t rank, std::uint32_t workers,
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

/// times.size() operations; each one's seconds, and from the first one's begin to the last one's
/// end, being late included.
[[nodiscard]] Result<double> time_operations(Exchange& exchange, std::span<double> times,
                                             const Meet& meet, const Straggle& straggle);

/// Does what the coordinator orders until it says quit. Errors are the exchange's own.
Result<void> take_part(Control& control, std::uint32_t rank, Exchange& exchange);

/// CLOCK_MONOTONIC.
[[nodiscard]] double now_s();

}  // namespace dt::bench
