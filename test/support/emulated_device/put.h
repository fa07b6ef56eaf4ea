/// How work gets on an emulated stream.
#pragma once

#include <functional>

#include "kvstore/cuda/device.h"

namespace dt::test::emulated {

/// `run` is done once the stream is there.
kv::cuda::Status put(kv::cuda::Stream stream, std::function<void()> run);

}  // namespace dt::test::emulated
