#include "kvstore/compute/half.h"

#include "core/base/result.h"
#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

namespace {

const HalfCodec& codec_of(data::Dtype dtype) {
  DT_CHECK(is_half(dtype), "a dtype of 16 bits");
  return dtype == data::Dtype::kFloat16 ? kernels().fp16 : kernels().bf16;
}

}  // namespace

void widen(data::Dtype dtype, float* out, const std::byte* from, std::size_t n) {
  codec_of(dtype).decode(out, reinterpret_cast<const std::uint16_t*>(from), n);
}

void narrow(data::Dtype dtype, std::byte* out, const float* from, std::size_t n) {
  codec_of(dtype).narrow(reinterpret_cast<std::uint16_t*>(out), from, n);
}

}  // namespace dt::kv
