/// The means for one source that gives the same bits on a GPU and on the host: functions for both,
/// numbers that round after every operation, memory accesses of up to 16 bytes. C++17, for every
/// nvcc.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define DT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define DT_HOST_DEVICE inline
#endif
/// Unrolls the loop below it, which has a constant length, so that on the device its arrays are
/// registers.
#if defined(__CUDA_ARCH__)
#define DT_UNROLL _Pragma("unroll")
#else
#define DT_UNROLL
#endif
#if defined(__USE_FAST_MATH__) || defined(__FAST_MATH__)
#error "the same bits everywhere: not with fast math, which flushes subnormals and divides roughly"
#endif

namespace dt::kv::cuda {

/// Adjacent elements that are read and written at once.
template <class Element, unsigned kLanes>
struct alignas(sizeof(Element) * kLanes)
#if !defined(__CUDA_ARCH__)
    [[gnu::may_alias]]
#endif
    Pack {
  Element at[kLanes];
};

/// The device need not look where an array is.
template <class Element>
DT_HOST_DEVICE void assume_global(const Element* array) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(array));
#else
  static_cast<void>(array);
#endif
}

/// The width of one access, in bytes.
constexpr unsigned kAccess = 16;

/// Reads pack number `item` of an array of `elements`. kWhole: the whole pack lies in the array,
/// and the array is aligned to packs; else element by element, with zeros past the end.
template <bool kWhole, unsigned kLanes, class Element>
DT_HOST_DEVICE Pack<Element, kLanes> load(const Element* array, std::uint64_t item,
                                          std::uint64_t elements) {
  assume_global(array);
  if constexpr (kWhole) {
    return reinterpret_cast<const Pack<Element, kLanes>*>(array)[item];
  } else {
    Pack<Element, kLanes> pack;
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const std::uint64_t i = item * kLanes + k;
      pack.at[k] = i < elements ? array[i] : Element{};
    }
    return pack;
  }
}

/// Writes a pack: nothing past the end is written.
template <bool kWhole, unsigned kLanes, class Element>
DT_HOST_DEVICE void store(Element* array, std::uint64_t item, std::uint64_t elements,
                          const Pack<Element, kLanes>& pack) {
  assume_global(array);
  if constexpr (kWhole) {
    reinterpret_cast<Pack<Element, kLanes>*>(array)[item] = pack;
  } else {
    DT_UNROLL
    for (unsigned k = 0; k < kLanes; ++k) {
      const std::uint64_t i = item * kLanes + k;
      if (i < elements) array[i] = pack.at[k];
    }
  }
}

template <unsigned kLanes, class Element>
DT_HOST_DEVICE bool is_aligned(const Element* array) {
  return reinterpret_cast<std::uintptr_t>(array) % sizeof(Pack<Element, kLanes>) == 0;
}

/// How many of pack `item`'s lanes are elements of the array.
template <unsigned kLanes>
DT_HOST_DEVICE unsigned lanes_of(std::uint64_t item, std::uint64_t elements) {
  const std::uint64_t begin = item * kLanes;
  if (begin >= elements) return 0;
  return elements - begin < kLanes ? static_cast<unsigned>(elements - begin) : kLanes;
}

DT_HOST_DEVICE std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}
DT_HOST_DEVICE float float_of(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}
DT_HOST_DEVICE std::uint64_t bits_of(double x) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint64_t>(__double_as_longlong(x));
#else
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

/// A float or double whose every operation is rounded once, to nearest: on the device whatever
/// nvcc's options for contraction, division and roots; on the host if -ffp-contract=off is given.
template <class T>
struct Rounded {
  T value;
};

#if defined(__CUDA_ARCH__)
#define DT_ROUNDED_OPERATION(symbol, of_float, of_double)                                \
  DT_HOST_DEVICE Rounded<float> operator symbol(Rounded<float> a, Rounded<float> b) {    \
    return {of_float(a.value, b.value)};                                                 \
  }                                                                                      \
  DT_HOST_DEVICE Rounded<double> operator symbol(Rounded<double> a, Rounded<double> b) { \
    return {of_double(a.value, b.value)};                                                \
  }
DT_ROUNDED_OPERATION(+, __fadd_rn, __dadd_rn)
DT_ROUNDED_OPERATION(-, __fsub_rn, __dsub_rn)
DT_ROUNDED_OPERATION(*, __fmul_rn, __dmul_rn)
DT_ROUNDED_OPERATION(/, __fdiv_rn, __ddiv_rn)
#undef DT_ROUNDED_OPERATION
DT_HOST_DEVICE Rounded<float> square_root(Rounded<float> x) { return {__fsqrt_rn(x.value)}; }
DT_HOST_DEVICE Rounded<double> square_root(Rounded<double> x) { return {__dsqrt_rn(x.value)}; }
#else
template <class T>
DT_HOST_DEVICE Rounded<T> operator+(Rounded<T> a, Rounded<T> b) {
  return {a.value + b.value};
}
template <class T>
DT_HOST_DEVICE Rounded<T> operator-(Rounded<T> a, Rounded<T> b) {
  return {a.value - b.value};
}
template <class T>
DT_HOST_DEVICE Rounded<T> operator*(Rounded<T> a, Rounded<T> b) {
  return {a.value * b.value};
}
template <class T>
DT_HOST_DEVICE Rounded<T> operator/(Rounded<T> a, Rounded<T> b) {
  return {a.value / b.value};
}
template <class T>
DT_HOST_DEVICE Rounded<T> square_root(Rounded<T> x) {
  return {std::sqrt(x.value)};
}
#endif

template <class T>
DT_HOST_DEVICE Rounded<T> rounded(T value) {
  return {value};
}

}  // namespace dt::kv::cuda
