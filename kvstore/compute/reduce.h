/// Sums of contributions, for values whose type is known at run time. The loops are in kernels/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"
#include "kvstore/protocol/messages.h"

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

/// Calls run(the arithmetic of the dtype's type), which is float or double.
template <class Run>
auto as_float(data::Dtype dtype, Run run) {
  if (dtype == data::Dtype::kFloat32) return run(kernels().f32);
  DT_CHECK(dtype == data::Dtype::kFloat64, "the store computes so with float32 and float64");
  return run(kernels().f64);
}

/// Computed in the values' own type. int64 elements wrap; they take weights and divisor 1 only.
/// `out` may be the first addend. Returns how many elements are not finite; 0 proves that all
/// contributions were.
std::size_t reduce(data::Dtype dtype, const Reduction& reduction, std::byte* out,
                   std::size_t elements);

/// into[i] += weight * from[i]. Returns how many elements of `from` are not finite.
std::size_t add_to(data::Dtype dtype, std::byte* into, const std::byte* from, double weight,
                   std::size_t elements);
/// values[i] *= factor. Not for int64.
void scale(data::Dtype dtype, std::byte* values, double factor, std::size_t elements);
[[nodiscard]] std::size_t count_nonfinite(data::Dtype dtype, const std::byte* values,
                                          std::size_t elements);

/// The store computes with float32, float64 and int64.
[[nodiscard]] bool is_supported(data::Dtype dtype);

}  // namespace dt::kv
