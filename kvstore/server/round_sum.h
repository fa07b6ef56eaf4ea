/// The contributions of one round of a chunk, summed as they arrive: the first one's memory becomes
/// the sum, later ones are added to it, and the last one is kept beside it, so that adding it can
/// be one pass over memory with what follows (the mean, the optimizer's step). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvstore/compute/engine.h"
#include "kvstore/compute/payload.h"
#include "kvstore/compute/reduce.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

/// The memory of values is the engine's, which is always the same one; codes are the host's.
/// For a mean every contribution counts by its number of samples. While all have the same number
/// (the usual case) the plain sum is kept; the first that differs has it multiplied.
class RoundSum {
 public:
  /// Adds a contribution of `samples` > 0. Returns memory that is free again: `bytes`, unless they
  /// are kept.
  [[nodiscard]] Payload add(Engine& engine, data::Dtype dtype, Payload bytes, bool is_mean,
                            std::uint64_t samples, bool is_last);
  /// Adds a compressed one of float32 values to what is there, which is not empty.
  void add_compressed(Engine& engine, data::Codec codec, const Payload& codes, bool is_mean,
                      std::uint64_t samples);
  [[nodiscard]] bool empty() const { return sum_.empty(); }
  /// All contributions so far, if any, were of so many samples each.
  [[nodiscard]] bool is_of(std::uint64_t samples) const {
    return empty() || (!is_weighted_ && samples == unit_);
  }
  /// Appends what it holds, with the weights for a mean or for a sum. Returns the samples of all.
  double append_to(std::vector<Addend>& addends, bool is_mean) const;

  /// Where the result can be computed in place.
  [[nodiscard]] Payload& bytes() { return sum_; }

  struct Memory {
    Payload sum;
    Payload last;
  };
  /// Everything it holds; afterwards this is ready for the next round.
  [[nodiscard]] Memory take();

 private:
  /// What the values of a contribution that is added to the sum are multiplied by.
  double weigh(Engine& engine, data::Dtype dtype, bool is_mean, std::uint64_t samples);
  [[nodiscard]] std::size_t elements(data::Dtype dtype) const {
    return sum_.size() / data::element_bytes(dtype);
  }

  Payload sum_;
  Payload last_;
  std::uint64_t unit_ = 0;          ///< Samples of the first contribution.
  std::uint64_t total_ = 0;         ///< Samples of all.
  std::uint64_t last_samples_ = 0;  ///< Of last_.
  bool is_weighted_ = false;        ///< sum_ is of samples * gradient.
};

}  // namespace dt::kv
