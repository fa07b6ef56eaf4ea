/// The floors: the exchange a synchronous pushpull makes, with the system calls a fast program
/// would use and nothing else. No membership, keys, frames, retries or authentication: both ends
/// know the list, so a byte's position in the stream identifies it. One thread per process.
#pragma once

#include "test/bench/kv/contender.h"

namespace dt::bench {

/// TCP between workers and servers.
[[nodiscard]] Contender start_raw(const KvOptions& options, const TensorList& list);
/// The same where every process is a worker and a server: its own share crosses no socket.
[[nodiscard]] Contender start_raw_colocated(const KvOptions& options, const TensorList& list);
/// Shared memory, nothing copied.
[[nodiscard]] Contender start_raw_shm(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
