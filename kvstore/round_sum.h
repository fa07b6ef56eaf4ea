/// The sum of one round's contributions to a chunk, taken as they arrive: the first one's memory
/// becomes the sum, later ones are added to it. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/data_messages.h"
#include "kvstore/payload.h"

namespace dt::kv {

/// For a mean every contribution counts by its number of samples. While all have the same number
/// (the usual case) the plain sum is kept; the first that differs has it multiplied.
class RoundSum {
 public:
  /// Adds a contribution of `samples` > 0. Returns memory that is free again: `bytes`, unless they
  /// became the sum.
  [[nodiscard]] Payload add(data::Dtype dtype, Payload bytes, bool is_mean, std::uint64_t samples);
  [[nodiscard]] bool empty() const { return bytes_.empty(); }
  /// What the sum is to be divided by.
  [[nodiscard]] double divisor(bool is_mean) const;
  /// The sum; afterwards this is empty and ready for the next round.
  [[nodiscard]] Payload take();

 private:
  Payload bytes_;
  std::uint64_t unit_ = 0;   ///< Samples of the first contribution.
  std::uint64_t total_ = 0;  ///< Samples of all.
  bool is_weighted_ = false;
};

}  // namespace dt::kv
