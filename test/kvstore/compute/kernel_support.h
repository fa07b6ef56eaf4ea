/// Shared by the tests of kvstore/compute/kernels.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kvstore/compute/kernels/kernels.h"
#include "test/kvstore/compute/plain_arithmetic.h"

namespace dt::kv {

struct Level {
  const char* name;
  const Kernels* kernels;
};

/// Every level this machine has.
inline std::vector<Level> levels() {
  std::vector<Level> all;
  const std::pair<const char*, SimdLevel> known[] = {{"baseline", SimdLevel::kBaseline},
                                                     {"avx2", SimdLevel::kAvx2},
                                                     {"avx512", SimdLevel::kAvx512}};
  for (const auto& [name, level] : known)
    if (const Kernels* found = kernels(level)) all.push_back({name, found});
  return all;
}

template <class T>
const Arithmetic<T>& arithmetic(const Kernels& kernels) {
  if constexpr (std::is_same_v<T, float>)
    return kernels.f32;
  else
    return kernels.f64;
}

/// Around every vector width, block and word.
inline const std::size_t kSizes[] = {0,  1,  2,  3,  7,   15,  16,  17,   31,   32,   33,
                                     47, 63, 64, 65, 127, 128, 255, 1023, 1024, 1025, 4133};
/// Bytes before the first element; also such that no element is aligned.
inline const std::size_t kOffsets[] = {0, 4, 8, 1, 19, 60};

/// An array at any address, with a guard on both sides.
template <class T>
class Array {
 public:
  Array(const std::vector<T>& values, std::size_t offset)
      : bytes_(kGuard + offset + values.size() * sizeof(T) + kGuard, kMark),
        begin_(kGuard + offset),
        size_(values.size()) {
    if (size_ > 0) std::memcpy(&bytes_[begin_], values.data(), size_ * sizeof(T));
  }
  Array(std::size_t size, std::size_t offset) : Array(std::vector<T>(size), offset) {}

  [[nodiscard]] T* data() { return reinterpret_cast<T*>(&bytes_[begin_]); }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(size_);
    if (size_ > 0) std::memcpy(out.data(), &bytes_[begin_], size_ * sizeof(T));
    return out;
  }
  /// Nothing was written outside.
  [[nodiscard]] bool is_whole() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if ((i < begin_ || i >= begin_ + size_ * sizeof(T)) && bytes_[i] != kMark) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr unsigned char kMark = 0xa5;
  std::vector<unsigned char> bytes_;
  std::size_t begin_;
  std::size_t size_;
};

template <class T>
std::size_t count_nonfinite(const std::vector<T>& values) {
  std::size_t count = 0;
  for (const T x : values) count += std::isfinite(x) ? 0 : 1;
  return count;
}

}  // namespace dt::kv
