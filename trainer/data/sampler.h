/// Which samples a worker takes: part k of n of every batch of every epoch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "trainer/data/random.h"

namespace dt::train {

/// The inputs for one worker's share of an epoch; all workers must agree on all but `rank`.
struct SamplerOptions {
  std::uint32_t samples = 0;       ///< Samples in the data set.
  std::uint32_t per_epoch = 0;     ///< Samples in one epoch; 0 or more than `samples`: all.
  std::uint32_t global_batch = 1;  ///< Samples of one step, all workers together.
  std::uint32_t rank = 0;
  std::uint32_t world = 1;
  std::uint64_t seed = 0;
  bool shuffle = true;
};

/// The workers go through one common shuffled order together, `global_batch` samples per step, and
/// each takes its part of the step. So every worker makes the same number of steps, and n workers
/// see the same samples per step as one worker with n times the batch. A step has at least one
/// sample of each worker: a last one that has fewer goes with the one before it. Only if all
/// samples are fewer than the workers, some parts are empty.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options) : options_(options) {
    DT_CHECK(options.world > 0 && options.rank < options.world, "rank outside the world");
    DT_CHECK(options.global_batch > 0, "an empty batch");
    count_ = options.samples;
    if (options.per_epoch != 0 && options.per_epoch < count_) count_ = options.per_epoch;
    whole_ = std::max(options.global_batch, options.world);
    steps_ = count_ / whole_;
    const std::uint32_t rest = count_ % whole_;
    if (rest >= options.world || (rest != 0 && steps_ == 0)) ++steps_;
  }

  /// Sets the order of an epoch.
  void begin(std::uint32_t epoch) {
    if (!options_.shuffle) {
      if (order_.empty()) {
        order_.resize(options_.samples);
        std::iota(order_.begin(), order_.end(), 0U);
      }
      return;
    }
    order_ = shuffled(options_.samples, options_.seed * 1'000'003 + epoch);
  }

  [[nodiscard]] std::uint32_t steps() const { return steps_; }

  /// This worker's samples of a step; empty beyond the last. Valid until the next begin().
  [[nodiscard]] std::span<const std::uint32_t> batch(std::uint32_t step) const {
    if (step >= steps()) return {};
    const std::uint32_t first = step * whole_;
    const std::uint32_t whole = step + 1 == steps_ ? count_ - first : whole_;
    // The parts' sizes differ by at most one.
    const auto edge = [&](std::uint64_t rank) { return whole * rank / options_.world; };
    const std::uint64_t begin = edge(options_.rank);
    const std::uint64_t end = edge(std::uint64_t{options_.rank} + 1);
    return std::span(order_).subspan(first + begin, end - begin);
  }

 private:
  SamplerOptions options_;
  std::uint32_t count_ = 0;
  std::uint32_t whole_ = 1;  ///< Samples of each step but the last.
  std::uint32_t steps_ = 0;
  std::vector<std::uint32_t> order_;
};

}  // namespace dt::train
