/// NCCL over the emulated devices, for one process that has all ranks. Calls of a group run on
/// their streams, as late as the emulation allows, and are checked: same call, same size, each with
/// its communicator's device current, memory that devices reach.
#pragma once

#include <cstddef>
#include <functional>

#include "kvstore/compute/cuda/nccl.h"

namespace dt::test::emulated {

[[nodiscard]] const kv::cuda::NcclFunctions& nccl();

/// Errors to inject from the next call on.
struct NcclTroubles {
  int slow_answers = 2;  ///< How often each step is "in progress" before it is done.
  bool begin_never_ends = false;
  int begin_fails = 0;       ///< Fails with that result while it is in progress.
  int call_fails = 0;        ///< The next group of calls returns that result at once.
  int breaks_under_way = 0;  ///< The next group of calls never ends; queries return this error.
  int missing_rank = -1;     ///< Never makes its calls; the others wait for it.
  int damaged_rank = -1;     ///< The last byte that it receives is wrong.
};
/// No troubles; nothing may be alive.
NcclTroubles& restart_nccl();
/// Call it only while no other thread calls NCCL.
NcclTroubles& nccl_troubles();
void set_nccl_troubles(NcclTroubles troubles);

/// NCCL's work put on streams from now on waits there until the result is called.
[[nodiscard]] std::function<void()> hold_nccl();
/// From now on queries of the existing communicators return that error.
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
