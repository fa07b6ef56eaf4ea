/// Sums of contributions, for values whose type is known at run time. The loops are in kernels/.
#pragma once

#include <cstddef>

#include "kvstore/compute/typed_sum.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

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
