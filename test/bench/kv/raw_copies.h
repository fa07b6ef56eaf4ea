/// The floor of an exchange with devices: its copies, and nothing else.
///
/// For each worker, and for the servers on its behalf, each copy in one piece on its own stream:
///
///     worker's device   gradient ---> pinned          pinned ---> result
///     servers' device            pinned ---> memory       memory ---> pinned
///
/// The first line with --device, the second with --server-device. Nothing is summed, and the copies
/// wait for each other only at the end, so that both directions and all devices are always busy.
/// Without shared device memory every exchange copies at least these bytes. run_to_check() makes
/// the same copies one after the other; the result is then the worker's own gradient.
#pragma once

#include "test/bench/kv/contender.h"

namespace dt::bench {

/// Its name for --peer.
inline constexpr const char* kCopiesPeer = "copies";

[[nodiscard]] Contender start_copies(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
