#include "kvstore/cuda/launch_kernel.h"
#include "kvstore/cuda/steps.h"

namespace dt::kv::cuda {

#define DT_LAUNCH_STEPS(Values, In) \
  DT_LAUNCH(Sgd<Values, In, 1>)     \
  DT_LAUNCH(Sgd<Values, In, 8>)     \
  DT_LAUNCH(Adam<Values, In, 1>)    \
  DT_LAUNCH(Adam<Values, In, 8>)
DT_LAUNCH_STEPS(Float32, Float32)
DT_LAUNCH_STEPS(Float64, Float64)
DT_LAUNCH_STEPS(Fp16, Fp16)
DT_LAUNCH_STEPS(Bf16, Bf16)
DT_LAUNCH_STEPS(Fp16, Float32)
DT_LAUNCH_STEPS(Bf16, Float32)

}  // namespace dt::kv::cuda
