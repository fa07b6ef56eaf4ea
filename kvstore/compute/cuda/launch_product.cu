#include <cuda_runtime.h>

#include "kvstore/compute/cuda/product.h"

namespace dt::kv::cuda {

constexpr int kRows = 4;  ///< Elements of c that a thread computes, one under the other.

/// A block computes a tile of c, by tiles of a and b in shared memory. In no anonymous namespace:
/// nvcc would name that after the path of this file, and two clones would make other bytes.
__global__ void multiply_tiles(const float* a, const float* b, float* c, int size) {
  __shared__ float left[kProductTile][kProductTile];
  __shared__ float right[kProductTile][kProductTile];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y) * kRows;
  const std::size_t n = static_cast<std::size_t>(size);
  const std::size_t row = static_cast<std::size_t>(blockIdx.y) * kProductTile + y;
  const std::size_t column = static_cast<std::size_t>(blockIdx.x) * kProductTile + x;
  float sum[kRows] = {};
  for (std::size_t k = 0; k < n; k += kProductTile) {
    for (int i = 0; i < kRows; ++i) {
      left[y + i][x] = a[(row + i) * n + k + x];
      right[y + i][x] = b[(k + y + i) * n + column];
    }
    __syncthreads();
    for (int j = 0; j < kProductTile; ++j)
      for (int i = 0; i < kRows; ++i) sum[i] += left[y + i][j] * right[j][x];
    __syncthreads();
  }
  for (int i = 0; i < kRows; ++i) c[(row + i) * n + column] = sum[i];
}

Status multiply(const float* a, const float* b, float* c, int size, Stream stream) {
  if (size <= 0 || size % kProductTile != 0) return {"a matrix whose size is no multiple of 32"};
  const unsigned tiles = static_cast<unsigned>(size / kProductTile);
  multiply_tiles<<<dim3(tiles, tiles), dim3(kProductTile, kProductTile / kRows), 0, stream>>>(
      a, b, c, size);
  const cudaError_t error = cudaGetLastError();
  return {error == cudaSuccess ? nullptr : cudaGetErrorString(error)};
}

}  // namespace dt::kv::cuda
