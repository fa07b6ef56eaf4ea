/// The kernel of every operation. Only launch_*.cu include this, each for some operations.
#pragma once

#include <cuda_runtime.h>

#include "kvstore/compute/cuda/launch.h"

namespace dt::kv::cuda {

/// Each block computes a tile.
template <class Operation>
__global__ void __launch_bounds__(kThreads)
    run_tiles(const __grid_constant__ Operation operation,
              const __grid_constant__ typename Operation::Tensor tensor,
              unsigned long long* nonfinite) {
  const unsigned found = run_thread(operation, tensor, blockIdx.x, threadIdx.x);
  // Rare: so blocks do not sum their threads' counts first.
  if (found > 0 && nonfinite) atomicAdd(nonfinite, static_cast<unsigned long long>(found));
}

/// The largest grid there is.
constexpr std::uint64_t kMostTiles = 0x7fff'ffff;

template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream) {
  const std::uint64_t count = tiles_of<Operation>(tensor);
  if (count == 0) return {};
  if (count > kMostTiles) return {"more tiles than one launch may have"};
  static_assert(sizeof(unsigned long long) == sizeof *nonfinite);
  run_tiles<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(
      operation, tensor, reinterpret_cast<unsigned long long*>(nonfinite));
  const cudaError_t error = cudaGetLastError();
  return {error == cudaSuccess ? nullptr : cudaGetErrorString(error)};
}

#define DT_LAUNCH(...) \
  template Status launch(const __VA_ARGS__&, const __VA_ARGS__::Tensor&, std::uint64_t*, Stream);

}  // namespace dt::kv::cuda
