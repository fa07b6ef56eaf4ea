/// The floor of an exchange with devices: its copies, and nothing else.
///
/// Of a worker, and of the servers for it, each at once in one piece on a stream of its own:
///
///     worker's device   gradient ---> pinned          pinned ---> result
///     servers' device            pinned ---> memory       memory ---> pinned
///
/// The first line with --device, the second with --server-device. Nothing is added up, and nobody
/// waits for another but at the end, so that both directions and all devices are busy all the time.
/// Without sharing device memory no exchange makes do with fewer bytes. run_to_check() makes the
/// same copies one after the other, after which the result is the worker's own gradient.
#pragma once

#include "kvstore/bench/contender.h"

namespace dt::bench {

/// What --peer knows it by.
inline constexpr const char* kCopiesPeer = "copies";

[[nodiscard]] Result<Contender> start_copies(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
