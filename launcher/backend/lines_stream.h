/// A stream over one that passes whole lines on (core/launch/lines.h); the other side does the
/// same.
#pragma once

#include <memory>

#include "io/byte_stream.h"

namespace dt::launcher {

[[nodiscard]] std::unique_ptr<io::ByteStream> lines_stream(std::unique_ptr<io::ByteStream> carrier);

}  // namespace dt::launcher
