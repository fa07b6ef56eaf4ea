#include "kvstore/compute/cuda/codecs.h"
#include "kvstore/compute/cuda/launch_kernel.h"
#include "kvstore/compute/cuda/launch_list.h"
#include "kvstore/compute/cuda/sum.h"

namespace dt::kv::cuda {

DT_CODECS(DT_LAUNCH)

}  // namespace dt::kv::cuda
