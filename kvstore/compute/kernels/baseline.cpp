#define DT_KERNELS kBaselineKernels
#define DT_LEVEL SimdLevel::kBaseline
#include "kvstore/compute/kernels/level.h"
