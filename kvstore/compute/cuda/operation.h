/// The definition of an operation, and the division of its work into tiles: once for the device,
/// where a block of threads computes a tile, and once for the host, where a loop does.
///
/// An operation is a struct of its constants (weights, rates), copied to the device at each launch:
///
///     Tensor             its arrays and their length (elements), for one tensor of many
///     kLanes             elements of an item: what a thread reads and writes at once
///     kAtOnce            items that a thread has under way together
///     is_wide(tensor)    all arrays are aligned to items
///     read<kWhole>(tensor, item)           loads what it needs, unchanged
///     write<kWhole>(tensor, item, loaded)  computes and stores; returns the non-finite elements
///
/// kWhole: as for load and store. Only the item itself is read or written, so an output may be one
/// of the inputs. Arrays are aligned to their elements at least; arrays not aligned to items are
/// read element by element, with the same bits, but slower.
#pragma once

#include "kvstore/compute/cuda/host_device.h"

namespace dt::kv::cuda {

/// Threads of a block.
constexpr unsigned kThreads = 256;

/// Items of a tile.
template <class Operation>
constexpr std::uint64_t kTileItems = std::uint64_t{kThreads} * Operation::kAtOnce;

/// The last item may be a part of one.
template <class Operation>
DT_HOST_DEVICE std::uint64_t items_of(const typename Operation::Tensor& tensor) {
  return (tensor.elements + Operation::kLanes - 1) / Operation::kLanes;
}

template <class Operation>
std::uint64_t tiles_of(const typename Operation::Tensor& tensor) {
  return (items_of<Operation>(tensor) + kTileItems<Operation> - 1) / kTileItems<Operation>;
}

/// One thread's part of a tile: every kThreads-th item. Returns the non-finite elements.
template <class Operation>
DT_HOST_DEVICE unsigned run_thread(const Operation& operation,
                                   const typename Operation::Tensor& tensor, std::uint64_t tile,
                                   unsigned thread) {
  constexpr unsigned kAtOnce = Operation::kAtOnce;
  constexpr unsigned kLanes = Operation::kLanes;
  const std::uint64_t begin = tile * kTileItems<Operation>;
  const bool is_wide = operation.is_wide(tensor);
  unsigned nonfinite = 0;
  if (is_wide && (begin + kTileItems<Operation>)*kLanes <= tensor.elements) {
    // All loads are issued before the first is waited for.
    typename Operation::Loaded loaded[kAtOnce];
    DT_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k)
      loaded[k] = operation.template read<true>(tensor, begin + k * kThreads + thread);
    DT_UNROLL
    for (unsigned k = 0; k < kAtOnce; ++k)
      nonfinite += operation.template write<true>(tensor, begin + k * kThreads + thread, loaded[k]);
    return nonfinite;
  }
  const std::uint64_t items = items_of<Operation>(tensor);
  for (unsigned k = 0; k < kAtOnce; ++k) {
    const std::uint64_t item = begin + k * kThreads + thread;
    if (item >= items) break;
    if (is_wide && (item + 1) * kLanes <= tensor.elements)
      nonfinite +=
          operation.template write<true>(tensor, item, operation.template read<true>(tensor, item));
    else
      nonfinite += operation.template write<false>(tensor, item,
                                                   operation.template read<false>(tensor, item));
  }
  return nonfinite;
}

/// The host form: the same over `count` tensors, by this thread. Returns the non-finite elements.
template <class Operation>
std::uint64_t run_on_host(const Operation& operation, const typename Operation::Tensor* tensors,
                          std::uint64_t count) {
  std::uint64_t nonfinite = 0;
  for (std::uint64_t t = 0; t < count; ++t)
    for (std::uint64_t tile = 0; tile < tiles_of<Operation>(tensors[t]); ++tile)
      for (unsigned thread = 0; thread < kThreads; ++thread)
        nonfinite += run_thread(operation, tensors[t], tile, thread);
  return nonfinite;
}

}  // namespace dt::kv::cuda
