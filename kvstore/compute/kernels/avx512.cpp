#define DT_KERNELS kAvx512Kernels
#define DT_LEVEL SimdLevel::kAvx512
#include "kvstore/compute/kernels/level.h"
