/// How work gets on an emulated stream.
#pragma once

#include <functional>

#include "kvstore/compute/cuda/device.h"

namespace dt::test::emulated {

/// `run` is done once the stream is there.
kv::cuda::Status put(kv::cuda::Stream stream, std::function<void()> run);

/// The same for a launch, which is refused on a stream of another device than the thread's.
kv::cuda::Status put_launch(kv::cuda::Stream stream, std::function<void()> run);

/// Work put on the stream from now on waits until the result is called; an event after that has
/// not passed, however often it is queried.
[[nodiscard]] std::function<void()> hold(kv::cuda::Stream stream);

}  // namespace dt::test::emulated
