/// A stream over one that passes whole lines on (core/launch/lines.h); the other side does the
/// same.
#pragma once

#include "io/byte_stream.h"

namespace dt::launcher {

[[nodiscard]] io::StreamPtr lines_stream(io::StreamPtr carrier);

}  // namespace dt::launcher
