/// The kernel of every operation. Only launch_*.cu include this, each for some operations.
#pragma once

#include <cuda_runtime.h>

#include "kvstore/compute/cuda/launch.h"

namespace dt::kv::cuda {

/// A block does a tile: of `one`, or of the table's tensor that the tile names.
template <class Operation>
__global__ void __launch_bounds__(kThreads)
    run_tiles(const __grid_constant__ Operation operation,
              const __grid_constant__ typename Operation::Tensor one,
              const typename Operation::Tensor* tensors, const Tile* tiles,
              unsigned long long* nonfinite) {
  std::uint64_t tile = blockIdx.x;
  typename Operation::Tensor tensor = one;
  if (tiles) {
    const Tile entry = tiles[blockIdx.x];
    tensor = tensors[entry.tensor];
    tile = entry.tile;
  }
  const unsigned found = run_thread(operation, tensor, tile, threadIdx.x);
  // Rare: so no block adds up what its threads found.
  if (found > 0 && nonfinite) atomicAdd(nonfinite, static_cast<unsigned long long>(found));
}

/// The largest grid there is.
constexpr std::uint64_t kMostTiles = 0x7fff'ffff;

template <class Operation>
Status start(const Operation& operation, const typename Operation::Tensor& one,
             const typename Operation::Tensor* tensors, const Tile* tiles, std::uint64_t count,
             std::uint64_t* nonfinite, Stream stream) {
  if (count == 0) return {};
  if (count > kMostTiles) return {"more tiles than one launch may have"};
  static_assert(sizeof(unsigned long long) == sizeof *nonfinite);
  run_tiles<<<static_cast<unsigned>(count), kThreads, 0, stream>>>(
      operation, one, tensors, tiles, reinterpret_cast<unsigned long long*>(nonfinite));
  const cudaError_t error = cudaGetLastError();
  return {error == cudaSuccess ? nullptr : cudaGetErrorString(error)};
}

template <class Operation>
Status launch(const Operation& operation, const typename Operation::Tensor& tensor,
              std::uint64_t* nonfinite, Stream stream) {
  return start(operation, tensor, nullptr, nullptr, tiles_of<Operation>(tensor), nonfinite, stream);
}

template <class Operation>
Status launch(const Operation& operation, const Table<Operation>& table, std::uint64_t* nonfinite,
              Stream stream) {
  return start(operation, {}, table.tensors(), table.tiles(), table.tile_count(), nonfinite,
               stream);
}

#define DT_LAUNCH(...)                                                                            \
  template Status launch(const __VA_ARGS__&, const __VA_ARGS__::Tensor&, std::uint64_t*, Stream); \
  template Status launch(const __VA_ARGS__&, const Table<__VA_ARGS__>&, std::uint64_t*, Stream);

}  // namespace dt::kv::cuda
