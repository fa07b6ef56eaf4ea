#include "kvstore/cuda/launch_kernel.h"
#include "kvstore/cuda/launch_list.h"
#include "kvstore/cuda/sum.h"

namespace dt::kv::cuda {

DT_SUMS(DT_LAUNCH)

}  // namespace dt::kv::cuda
