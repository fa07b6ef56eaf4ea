/// A weighted sum of contributions whose type is known at run time, and as the kernels take it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

/// A contribution and its weight.
struct Addend {
  const std::byte* data = nullptr;
  double weight = 1;
};

/// (the weighted addends, added in their order) / divisor. `divisor` 1 with weights 1 is a sum;
/// weights n and divisor sum(n) is the sample-weighted mean.
struct Reduction {
  std::span<const Addend> addends;
  double divisor = 1;
};

/// A Reduction as the kernels take it. T is float or double. Lives as long as sum() is used.
template <class T>
class TypedSum {
 public:
  explicit TypedSum(const Reduction& reduction) {
    const auto& addends = reduction.addends;
    sources_.reserve(addends.size());
    for (const auto& addend : addends) sources_.push_back(reinterpret_cast<const T*>(addend.data));
    const bool plain =
        std::all_of(addends.begin(), addends.end(), [](const auto& a) { return a.weight == 1; });
    if (!plain)
      for (const auto& addend : addends) weights_.push_back(static_cast<T>(addend.weight));
    sum_.sources = sources_.data();
    sum_.weights = plain ? nullptr : weights_.data();
    sum_.count = sources_.size();
    sum_.divisor = static_cast<T>(reduction.divisor);
  }
  TypedSum(const TypedSum&) = delete;
  TypedSum& operator=(const TypedSum&) = delete;

  [[nodiscard]] const WeightedSum<T>& sum() const { return sum_; }

 private:
  std::vector<const T*> sources_;
  std::vector<T> weights_;
  WeightedSum<T> sum_;
};

}  // namespace dt::kv
