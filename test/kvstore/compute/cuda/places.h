/// The place where the checks of kvstore/compute/cuda run: the host, in its own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/operation.h"

namespace dt::kv::cuda {

/// Memory and how to run an operation there. (The device's twin is in gpu_tests.cpp.)
class OnHost {
 public:
  using Memory = std::shared_ptr<void>;  ///< aligned to 256 bytes

  static Memory allocate(std::size_t bytes) {
    static constexpr std::align_val_t kAlignment{256};
    return {::operator new(bytes + 1, kAlignment),
            [](void* p) { ::operator delete(p, kAlignment); }};
  }
  static void put(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void get(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }

  /// Over all tensors at once. Returns the count of non-finite elements.
  template <class Operation>
  static std::uint64_t run(const Operation& operation,
                           const std::vector<typename Operation::Tensor>& tensors) {
    return run_on_host(operation, tensors.data(), tensors.size());
  }
};

/// An array at the place of the operations, `shift` elements off the alignment of items, with a
/// guard on both sides. Guards and memory without a given value are poisoned.
template <class T, class Where>
class GuardedArray {
 public:
  GuardedArray(const std::vector<T>& values, std::size_t shift)
      : GuardedArray(values.size(), shift) {
    if (size_ > 0) Where::put(data(), values.data(), size_ * sizeof(T));
  }
  GuardedArray(std::size_t size, std::size_t shift)
      : size_(size),
        begin_(kGuard + shift * sizeof(T)),
        bytes_(begin_ + size * sizeof(T) + kGuard) {
    memory_ = Where::allocate(bytes_);
    const std::vector<unsigned char> poison(bytes_, kPoison);
    Where::put(memory_.get(), poison.data(), bytes_);
  }

  [[nodiscard]] T* data() const {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(memory_.get()) + begin_);
  }
  [[nodiscard]] std::vector<T> values() const {
    std::vector<T> out(size_);
    if (size_ > 0) Where::get(out.data(), data(), size_ * sizeof(T));
    return out;
  }
  /// Nothing was written outside.
  [[nodiscard]] bool is_whole() const {
    std::vector<unsigned char> bytes(bytes_);
    Where::get(bytes.data(), memory_.get(), bytes_);
    for (std::size_t i = 0; i < bytes_; ++i)
      if ((i < begin_ || i >= begin_ + size_ * sizeof(T)) && bytes[i] != kPoison) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr unsigned char kPoison = 0xa5;
  std::size_t size_;
  std::size_t begin_;
  std::size_t bytes_;
  typename Where::Memory memory_;
};

}  // namespace dt::kv::cuda
