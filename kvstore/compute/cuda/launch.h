/// Operations on a device, one launch a tensor. Needs no CUDA headers.
///
/// A launch puts work on the caller's stream and returns. `nonfinite` is memory the device can
/// write to, or null: the count is added to it. The tensor's arrays stay until the stream has
/// passed the launch.
#pragma once

#include <cstdint>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// launch_list.h has the operations; a linker's error names one that is not there.
template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream);

}  // namespace dt::kv::cuda
