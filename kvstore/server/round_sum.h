/// The contributions of one round of a chunk, summed as they arrive: the first one's memory becomes
/// the sum, later ones are added to it, and the last one is kept apart, so that one pass over
/// memory adds it and computes the mean and the optimizer's step. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvstore/compute/engine.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// Values are in memory of the engine, which must be the same one at each call; codes are in host
/// memory. For a mean every contribution is weighted by its number of samples. While all have the
/// same number (the usual case) the plain sum is kept; when the first differs, the sum is
/// multiplied.
class RoundSum {
 public:
  /// Adds a contribution of `samples` > 0. Returns `bytes` if their memory is free again; empty:
  /// they are kept.
  [[nodiscard]] Payload add(Engine& engine, data::Dtype dtype, Payload bytes, bool is_mean,
                            std::uint64_t samples, bool is_last);
  /// Adds a compressed contribution of float32 values to the sum, which must not be empty.
  void add_compressed(Engine& engine, data::Codec codec, const Payload& codes, bool is_mean,
                      std::uint64_t samples);
  [[nodiscard]] bool empty() const { return sum_.empty(); }
  /// Whether all contributions so far, if any, had this number of samples each.
  [[nodiscard]] bool is_of(std::uint64_t samples) const {
    return empty() || (!is_weighted_ && samples == unit_);
  }
  /// Appends the sum and the last contribution, with the weights for a mean or for a sum. Returns
  /// the samples of all contributions.
  double append_to(std::vector<Addend>& addends, bool is_mean) const;

  /// The sum's memory, in which the result can be computed.
  [[nodiscard]] Payload& bytes() { return sum_; }

  struct Memory {
    Payload sum;
    Payload last;
  };
  /// Takes all memory out; afterwards this is ready for the next round.
  [[nodiscard]] Memory take();

 private:
  /// The factor for the values of a contribution that is added to the sum.
  double weigh(Engine& engine, data::Dtype dtype, bool is_mean, std::uint64_t samples);
  [[nodiscard]] std::size_t elements(data::Dtype dtype) const {
    return sum_.size() / data::element_bytes(dtype);
  }

  Payload sum_;
  Payload last_;
  std::uint64_t unit_ = 0;          ///< Samples of the first contribution.
  std::uint64_t total_ = 0;         ///< Samples of all.
  std::uint64_t last_samples_ = 0;  ///< Samples of last_.
  bool is_weighted_ = false;        ///< sum_ is the sum of samples * gradient.
};

}  // namespace dt::kv
