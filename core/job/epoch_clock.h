/// When the present epoch ends, by the steps that its workers report. Pure.
///
/// The steps of an epoch are those that a worker has announced, else those of the epoch before.
/// Before any step is known, an epoch lasts as long as the one before.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/time.h"

namespace dt {

class EpochClock {
 public:
  void epoch_begins(Time now);
  /// The epoch was interrupted, or its begin was not seen.
  void forget_begin() { began_.reset(); }
  /// A worker has done this step of the present epoch. Steps may count from the epoch's begin or
  /// from the job's.
  void at_step(std::uint64_t step, Time now);
  /// The steps of an epoch; 0: not known.
  void announced(std::uint64_t steps) { announced_ = steps; }

  /// Until the epoch's end; zero if that is overdue; nothing: not known.
  [[nodiscard]] std::optional<Duration> left(Time now) const;
  /// How long the last whole epoch took.
  [[nodiscard]] const std::optional<Duration>& last() const { return last_; }

 private:
  std::optional<Time> began_;
  std::optional<Duration> last_;
  std::uint64_t announced_ = 0;
  std::uint64_t last_steps_ = 0;
  std::uint64_t before_ = 0;  ///< Steps that were done before the epoch began.
  std::optional<std::uint64_t> step_;
  std::uint64_t last_step_ = 0;  ///< Last step of the epoch before.
  Time stepped_at_{};
};

}  // namespace dt
