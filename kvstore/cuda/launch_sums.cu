#include "kvstore/cuda/launch_kernel.h"
#include "kvstore/cuda/sum.h"

namespace dt::kv::cuda {

#define DT_LAUNCH_SUMS(In, Out) \
  DT_LAUNCH(Sum<In, Out, 1>)    \
  DT_LAUNCH(Sum<In, Out, 2>)    \
  DT_LAUNCH(Sum<In, Out, 4>)    \
  DT_LAUNCH(Sum<In, Out, 8>)
DT_LAUNCH_SUMS(Float32, Float32)
DT_LAUNCH_SUMS(Float64, Float64)
DT_LAUNCH_SUMS(Fp16, Fp16)
DT_LAUNCH_SUMS(Bf16, Bf16)
DT_LAUNCH_SUMS(Fp16, Float32)
DT_LAUNCH_SUMS(Bf16, Float32)
DT_LAUNCH(Cast<Float32, Fp16>)
DT_LAUNCH(Cast<Float32, Bf16>)
DT_LAUNCH(Add<Float32>)
DT_LAUNCH(Add<Float64>)
DT_LAUNCH(Add<Fp16>)
DT_LAUNCH(Add<Bf16>)

}  // namespace dt::kv::cuda
