/// The floor: the exchange a synchronous pushpull makes, with the system calls a fast program would
/// use and nothing else. No membership, keys, frames, retries or authentication: both ends know the
/// list, so a position in the byte stream says what a byte is.
///
///     worker w, per server: gathers its slices out of one buffer, sends, receives the sums in
///     place server s: the first contribution to reach a position is received straight into the
///               accumulator, the others into a buffer that stays in the cache and are added from
///               there; what all have sent goes back out of the accumulator
///
/// One thread per process, poll(), non-blocking vectored calls, TCP with reno (bbr paces, and
/// halves loopback's rate). Two accumulators take turns, since a worker may begin the next round
/// while another still receives this one.
#pragma once

#include "kvstore/bench/contender.h"

namespace dt::bench {

[[nodiscard]] Result<Contender> start_raw(const KvOptions& options, const TensorList& list);

}  // namespace dt::bench
