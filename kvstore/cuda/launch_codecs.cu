#include "kvstore/cuda/codecs.h"
#include "kvstore/cuda/launch_kernel.h"

namespace dt::kv::cuda {

DT_LAUNCH(EncodeTwoBit)
DT_LAUNCH(DecodeTwoBit)
DT_LAUNCH(AddTwoBit)
DT_LAUNCH(EncodeHalf<Fp16>)
DT_LAUNCH(EncodeHalf<Bf16>)

}  // namespace dt::kv::cuda
