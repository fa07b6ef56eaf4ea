/// Values of 16 bits, float16 and bfloat16, from and to float32, with which the store computes.
#pragma once

#include <cstddef>

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"
#include "kvstore/protocol/messages.h"

namespace dt::kv {

[[nodiscard]] constexpr bool is_half(data::Dtype dtype) {
  return dtype == data::Dtype::kFloat16 || dtype == data::Dtype::kBfloat16;
}
[[nodiscard]] inline const HalfCodec& codec_of_half(data::Dtype dtype) {
  DT_CHECK(is_half(dtype), "a dtype of 16 bits");
  return dtype == data::Dtype::kFloat16 ? kernels().fp16 : kernels().bf16;
}

// `dtype` is a half's; the n elements of `out` and `from` do not overlap.

/// Exact.
inline void widen(data::Dtype dtype, float* out, const std::byte* from, std::size_t n) {
  codec_of_half(dtype).decode(out, reinterpret_cast<const std::uint16_t*>(from), n);
}
/// To the nearest, ties to even. A number that is too large becomes infinite, a NaN stays a NaN.
inline void narrow(data::Dtype dtype, std::byte* out, const float* from, std::size_t n) {
  codec_of_half(dtype).narrow(reinterpret_cast<std::uint16_t*>(out), from, n);
}

}  // namespace dt::kv
