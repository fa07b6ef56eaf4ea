/// Operations on a device, one launch per tensor. Needs no CUDA headers.
///
/// A launch puts work on the caller's stream and returns. `nonfinite` is memory the device can
/// write to, or null: the count is added to it. The tensor's arrays must live until the stream has
/// passed the launch.
#pragma once

#include <cstdint>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// launch_list.h lists the operations; the linker reports one that is missing there.
template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream);

}  // namespace dt::kv::cuda
