/// The types that are compiled for launches, once for every device there is: DT_SUMS(DT_LAUNCH),
/// DT_STEPS(DT_LAUNCH) and DT_CODECS(DT_LAUNCH) instantiate them.
#pragma once

#define DT_SUMS_OF(LAUNCH, In, Out) \
  LAUNCH(Sum<In, Out, 1>)           \
  LAUNCH(Sum<In, Out, 2>)           \
  LAUNCH(Sum<In, Out, 4>)           \
  LAUNCH(Sum<In, Out, 8>)
#define DT_SUMS(LAUNCH)                \
  DT_SUMS_OF(LAUNCH, Float32, Float32) \
  DT_SUMS_OF(LAUNCH, Float64, Float64) \
  DT_SUMS_OF(LAUNCH, Fp16, Fp16)       \
  DT_SUMS_OF(LAUNCH, Bf16, Bf16)       \
  DT_SUMS_OF(LAUNCH, Fp16, Float32)    \
  DT_SUMS_OF(LAUNCH, Bf16, Float32)    \
  LAUNCH(Cast<Float32, Fp16>)          \
  LAUNCH(Cast<Float32, Bf16>)          \
  LAUNCH(Add<Float32>)                 \
  LAUNCH(Add<Float64>)                 \
  LAUNCH(Add<Fp16>)                    \
  LAUNCH(Add<Bf16>)

#define DT_STEPS_OF(LAUNCH, Values, In) \
  LAUNCH(Sgd<Values, In, 1>)            \
  LAUNCH(Sgd<Values, In, 8>)            \
  LAUNCH(Adam<Values, In, 1>)           \
  LAUNCH(Adam<Values, In, 8>)
#define DT_STEPS(LAUNCH)                \
  DT_STEPS_OF(LAUNCH, Float32, Float32) \
  DT_STEPS_OF(LAUNCH, Float64, Float64) \
  DT_STEPS_OF(LAUNCH, Fp16, Fp16)       \
  DT_STEPS_OF(LAUNCH, Bf16, Bf16)       \
  DT_STEPS_OF(LAUNCH, Fp16, Float32)    \
  DT_STEPS_OF(LAUNCH, Bf16, Float32)

#define DT_CODECS(LAUNCH)  \
  LAUNCH(EncodeOneBit)     \
  LAUNCH(DecodeOneBit)     \
  LAUNCH(AddOneBit)        \
  LAUNCH(EncodeTwoBit)     \
  LAUNCH(DecodeTwoBit)     \
  LAUNCH(AddTwoBit)        \
  LAUNCH(EncodeHalf<Fp16>) \
  LAUNCH(EncodeHalf<Bf16>)
