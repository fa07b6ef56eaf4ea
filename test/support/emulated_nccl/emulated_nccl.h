/// NCCL over the emulated devices, for one process that has all ranks: calls of a group are done on
/// their streams, as late as the emulation does everything, and by what must hold of them: same
/// call, same size, each with its communicator's device current, memory that devices reach.
#pragma once

#include <cstddef>
#include <functional>

#include "kvstore/compute/cuda/nccl.h"

namespace dt::test::emulated {

[[nodiscard]] const kv::cuda::NcclFunctions& nccl();

/// What goes wrong, from the next call on.
struct NcclTroubles {
  int slow_answers = 2;  ///< How often each step is "in progress" before it is done.
  bool begin_never_ends = false;
  int begin_fails = 0;       ///< With that result, found out while it is in progress.
  int call_fails = 0;        ///< The next group of calls gives that result at once.
  int breaks_under_way = 0;  ///< The next group of calls never ends, and asking gives that.
  int missing_rank = -1;     ///< Never makes its calls; the others wait for it.
  int damaged_rank = -1;     ///< The last byte of what it receives is another.
};
/// No troubles; nothing may be alive.
NcclTroubles& restart_nccl();
/// While no other thread calls NCCL.
NcclTroubles& nccl_troubles();
void set_nccl_troubles(NcclTroubles troubles);

/// What is put on streams from now on waits there until the result is called.
[[nodiscard]] std::function<void()> hold_nccl();
/// Who asks the communicators that there are gets that from now on.
void break_nccl(int error);

struct NcclCounts {
  std::size_t alive = 0;  ///< Communicators.
  std::size_t begun = 0;  ///< Groups of communicators.
  std::size_t aborted = 0;
  std::size_t destroyed = 0;
  std::size_t calls = 0;  ///< Collective ones, a rank each.
};
[[nodiscard]] NcclCounts nccl_counts();

}  // namespace dt::test::emulated
