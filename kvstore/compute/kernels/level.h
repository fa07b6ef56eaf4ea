/// The table of one level. A level's file defines DT_KERNELS (the table's name) and DT_LEVEL (its
/// SimdLevel), includes this and nothing else, and is compiled with that level's instructions.
#pragma once

#include "kvstore/compute/kernels/arithmetic.h"
#include "kvstore/compute/kernels/half_codec.h"
#include "kvstore/compute/kernels/kernels.h"
#include "kvstore/compute/kernels/steps.h"
#include "kvstore/compute/kernels/streaming.h"
#include "kvstore/compute/kernels/two_bit.h"

namespace dt::kv {

namespace {

template <class T>
constexpr Arithmetic<T> arithmetic_of() {
  return {
      .add = add<T>,
      .add_weighted = add_weighted<T>,
      .scale = scale<T>,
      .count_nonfinite = count_nonfinite<T>,
      .sum = sum<T>,
      .sgd = sgd<T>,
      .adam = adam<T>,
  };
}

template <class Half>
constexpr HalfCodec codec_of() {
  return {
      .encode = encode_half<Half>,
      .narrow = narrow_half<Half>,
      .decode = decode_half<Half>,
      .decode_add = decode_add_half<Half>,
  };
}

}  // namespace

extern const Kernels DT_KERNELS;
// A constant: nothing of a level may run before it was chosen, not even to fill its table.
constinit const Kernels DT_KERNELS = {
    .level = DT_LEVEL,
    .f32 = arithmetic_of<float>(),
    .f64 = arithmetic_of<double>(),
    .two_bit = {.encode = encode_two_bit,
                .decode = decode_two_bit,
                .decode_add = decode_add_two_bit},
    .fp16 = codec_of<Fp16>(),
    .bf16 = codec_of<Bf16>(),
    .add_int64 = add_int64,
    .copy_streaming = copy_streaming,
};

}  // namespace dt::kv
