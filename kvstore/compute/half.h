/// Values of 16 bits, float16 and bfloat16, from and to float32, with which the store computes.
#pragma once

#include <cstddef>

#include "kvstore/protocol/messages.h"

namespace dt::kv {

[[nodiscard]] constexpr bool is_half(data::Dtype dtype) {
  return dtype == data::Dtype::kFloat16 || dtype == data::Dtype::kBfloat16;
}

// `dtype` is a half's; the n elements of `out` and `from` do not overlap.

/// Exact.
void widen(data::Dtype dtype, float* out, const std::byte* from, std::size_t n);
/// To the nearest, ties to even. A number that is too large becomes infinite, a NaN stays a NaN.
void narrow(data::Dtype dtype, std::byte* out, const float* from, std::size_t n);

}  // namespace dt::kv
