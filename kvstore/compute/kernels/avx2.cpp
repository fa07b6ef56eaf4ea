#define DT_KERNELS kAvx2Kernels
#define DT_LEVEL SimdLevel::kAvx2
#include "kvstore/compute/kernels/level.h"
