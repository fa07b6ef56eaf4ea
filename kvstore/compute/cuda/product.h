/// A matrix product that tests whether a GPU computes correctly: not fast, but it uses all of the
/// GPU's multipliers. Its result is exact if the elements are small whole numbers.
#pragma once

#include "kvstore/compute/cuda/device.h"

namespace dt::kv::cuda {

/// The size of a matrix is a multiple of this.
constexpr int kProductTile = 32;

/// c = a * b, of `size` rows and columns each, row by row; on the stream.
Status multiply(const float* a, const float* b, float* c, int size, Stream stream);

}  // namespace dt::kv::cuda
