/// The operations that are compiled for launches, once for every implementer of launch.h:
/// DT_SUMS(DT_LAUNCH), DT_STEPS(DT_LAUNCH) and DT_CODECS(DT_LAUNCH) instantiate them.
#pragma once

#define DT_SUMS_OF(LAUNCH, Format) \
  LAUNCH(Sum<Format, 1>)           \
  LAUNCH(Sum<Format, 2>)           \
  LAUNCH(Sum<Format, 4>)           \
  LAUNCH(Sum<Format, 8>)           \
  LAUNCH(Add<Format>)
#define DT_SUMS(LAUNCH)       \
  DT_SUMS_OF(LAUNCH, Float32) \
  DT_SUMS_OF(LAUNCH, Float64)

#define DT_STEPS_OF(LAUNCH, Format) \
  LAUNCH(Sgd<Format, 1>)            \
  LAUNCH(Sgd<Format, 8>)            \
  LAUNCH(Adam<Format, 1>)           \
  LAUNCH(Adam<Format, 8>)
#define DT_STEPS(LAUNCH)       \
  DT_STEPS_OF(LAUNCH, Float32) \
  DT_STEPS_OF(LAUNCH, Float64)

#define DT_HALF_CODEC(LAUNCH, Half) \
  LAUNCH(Sum<Half, 1>)              \
  LAUNCH(Add<Half>)
#define DT_CODECS(LAUNCH)     \
  LAUNCH(DecodeTwoBit)        \
  LAUNCH(AddTwoBit)           \
  DT_HALF_CODEC(LAUNCH, Fp16) \
  DT_HALF_CODEC(LAUNCH, Bf16)
