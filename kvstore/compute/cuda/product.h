/// A matrix product that tests whether a GPU computes correctly: not fast, but it uses all of the
/// GPU's multipliers. Its result is exact if the elements are small whole numbers.
#pragma once

#include <cstddef>

#include "kvstore/compute/cuda/device.h"

namespace dt::kv::cuda {

/// The size of a matrix is a multiple of this.
constexpr int kProductTile = 32;

/// c = a * b, of `size` rows and columns each, row by row; on the stream.
Status multiply(const float* a, const float* b, float* c, int size, Stream stream);

/// The same on the host.
inline void multiply_on_host(const float* a, const float* b, float* c, int size) {
  const auto n = static_cast<std::size_t>(size);
  for (std::size_t row = 0; row < n; ++row)
    for (std::size_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::size_t k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
      c[row * n + column] = sum;
    }
}

}  // namespace dt::kv::cuda
