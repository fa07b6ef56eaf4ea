/// What all kernels share. Only level.h includes this and the other parts: everything is in an
/// unnamed namespace, for each level's file has its own machine code of the same names, and the
/// linker must never take one for another. For that reason no library template is used here either.
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

template <class T>
struct Element;
template <>
struct Element<float> {
  using Bits = std::uint32_t;
  static constexpr Bits kExponent = 0x7f80'0000;
  typedef float Loose __attribute__((aligned(1), may_alias));
};
template <>
struct Element<double> {
  using Bits = std::uint64_t;
  static constexpr Bits kExponent = 0x7ff0'0000'0000'0000;
  typedef double Loose __attribute__((aligned(1), may_alias));
};
template <>
struct Element<std::int64_t> {
  typedef std::uint64_t Loose __attribute__((aligned(1), may_alias));
};
template <>
struct Element<std::uint32_t> {
  typedef std::uint32_t Loose __attribute__((aligned(1), may_alias));
};
template <>
struct Element<std::uint16_t> {
  typedef std::uint16_t Loose __attribute__((aligned(1), may_alias));
};

/// T that may lie anywhere, in memory that was received as bytes.
template <class T>
using Loose = typename Element<T>::Loose;
template <class T>
using Bits = typename Element<T>::Bits;

template <class T>
typename Element<T>::Loose* loose(T* p) {
  return reinterpret_cast<typename Element<T>::Loose*>(p);
}
template <class T>
const typename Element<T>::Loose* loose(const T* p) {
  return reinterpret_cast<const typename Element<T>::Loose*>(p);
}

/// 1 if x is infinite or NaN. As wide as T, so that a loop counts in vectors.
template <class T>
Bits<T> is_nonfinite(T x) {
  return (__builtin_bit_cast(Bits<T>, x) & Element<T>::kExponent) == Element<T>::kExponent;
}

/// Elements that a 32-bit count can not overflow on.
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
