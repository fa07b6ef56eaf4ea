/// The process that accesses the shared volume. A call on a volume that does not answer leaves its
/// thread in an unkillable state; in a separate process that blocks no other part.
#pragma once

namespace dt::supervisor {

/// Serves VolumeClient on `fd` (a stream socket) until its other end closes; returns the exit code.
/// Hints about watched folders go to stdout, a byte each. Dies with the process that started it.
int volume_helper(int fd);

}  // namespace dt::supervisor
