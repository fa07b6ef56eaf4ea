/// The parts that all kernels share. Only level.h includes this and the other parts: everything is
/// in an unnamed namespace, since each level's file has its own machine code of the same names, and
/// the linker must never merge them. For the same reason no library template is used here.
#pragma once

#include <cstddef>
#include <cstdint>

// The loop's elements do not depend on each other, whatever arrays overlap exactly.
#if defined(__clang__)
#define DT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define DT_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace dt::kv {
namespace {

/// A T without alignment, in memory that was received as bytes.
template <class T>
struct [[gnu::packed, gnu::may_alias]] Loose {
  T value;
  operator T() const { return value; }
  Loose& operator=(T x) {
    value = x;
    return *this;
  }
};

template <class T>
Loose<T>* loose(T* p) {
  return reinterpret_cast<Loose<T>*>(p);
}
template <class T>
const Loose<T>* loose(const T* p) {
  return reinterpret_cast<const Loose<T>*>(p);
}

template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kExponent = 0x7f80'0000;
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kExponent = 0x7ff0'0000'0000'0000;
};
template <class T>
using Bits = typename Format<T>::Bits;

/// 1 if x is infinite or NaN. As wide as T, so that a loop counts in vectors.
template <class T>
Bits<T> is_nonfinite(T x) {
  return (__builtin_bit_cast(Bits<T>, x) & Format<T>::kExponent) == Format<T>::kExponent;
}

/// Number of elements whose count cannot overflow 32 bits.
constexpr std::size_t kCountable = std::size_t{1} << 30;

/// The sum of piece(at, n) over pieces of at most `most` elements.
template <class Piece>
std::size_t in_pieces(std::size_t n, std::size_t most, Piece piece) {
  std::size_t total = 0;
  for (std::size_t at = 0; at < n; at += most) total += piece(at, n - at < most ? n - at : most);
  return total;
}

}  // namespace
}  // namespace dt::kv
