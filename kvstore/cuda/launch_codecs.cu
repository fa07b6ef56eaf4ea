#include "kvstore/cuda/codecs.h"
#include "kvstore/cuda/launch_kernel.h"
#include "kvstore/cuda/launch_list.h"

namespace dt::kv::cuda {

DT_CODECS(DT_LAUNCH)

}  // namespace dt::kv::cuda
