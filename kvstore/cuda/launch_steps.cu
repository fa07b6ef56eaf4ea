#include "kvstore/cuda/launch_kernel.h"
#include "kvstore/cuda/launch_list.h"
#include "kvstore/cuda/steps.h"

namespace dt::kv::cuda {

DT_STEPS(DT_LAUNCH)

}  // namespace dt::kv::cuda
