#include "kvstore/compute/cuda/cuda_steps.h"
#include "kvstore/compute/cuda/launch_kernel.h"
#include "kvstore/compute/cuda/launch_list.h"

namespace dt::kv::cuda {

DT_STEPS(DT_LAUNCH)

}  // namespace dt::kv::cuda
