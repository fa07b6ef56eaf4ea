/// Numbers and their formats as the checks of kvstore/compute/cuda see them: in float64, by their
/// definition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kvstore/compute/cuda/formats.h"
#include "test/kvstore/compute/plain_arithmetic.h"

namespace dt::kv::cuda {

/// A 16-bit format: bits of its fraction, its bias.
template <class Half>
struct HalfShape;
template <>
struct HalfShape<Fp16> {
  static constexpr int kFraction = 10;
  static constexpr int kBias = 15;
};
template <>
struct HalfShape<Bf16> {
  static constexpr int kFraction = 7;
  static constexpr int kBias = 127;
};

/// The value of the code.
template <class Half>
double value_of(std::uint16_t half) {
  constexpr int kFraction = HalfShape<Half>::kFraction;
  constexpr int kBias = HalfShape<Half>::kBias;
  const int exponent = (half & 0x7fff) >> kFraction;
  const int fraction = half & ((1 << kFraction) - 1);
  double size = 0;
  if (exponent == 2 * kBias + 1)
    size = fraction != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : std::numeric_limits<double>::infinity();
  else if (exponent == 0)
    size = std::ldexp(fraction, 1 - kBias - kFraction);
  else
    size = std::ldexp((1 << kFraction) + fraction, exponent - kBias - kFraction);
  return (half & 0x8000) != 0 ? -size : size;
}

/// The code nearest to x, of two the even one. A NaN becomes some NaN.
template <class Half>
std::uint16_t nearest(double x) {
  constexpr int kFraction = HalfShape<Half>::kFraction;
  constexpr int kBias = HalfShape<Half>::kBias;
  constexpr int kInfinity = (2 * kBias + 1) << kFraction;
  const int sign = std::signbit(x) ? 0x8000 : 0;
  if (std::isnan(x)) return static_cast<std::uint16_t>(sign | kInfinity | 1 << (kFraction - 1));
  const double size = std::fabs(x);
  if (std::isinf(x)) return static_cast<std::uint16_t>(sign | kInfinity);
  if (size == 0) return static_cast<std::uint16_t>(sign);
  int exponent = 0;
  std::frexp(size, &exponent);  // size = [0.5, 1) * 2^exponent
  exponent = std::max(exponent - 1, 1 - kBias);
  // Whole steps of the last place; ties to even is the rounding mode of every program.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, kFraction - exponent)));
  // A carry increments the exponent; a subnormal's is one less.
  const int code = ((exponent + kBias - 1) << kFraction) + steps;
  return static_cast<std::uint16_t>(sign | std::min(code, kInfinity));
}

/// A format for the checks: its codes and their values.
template <class Format>
struct Plain {
  using Element = typename Format::Element;
  using Math = typename Format::Math;
  static constexpr bool kIsHalf = sizeof(Element) == 2;

  static Math widen(Element x) {
    if constexpr (kIsHalf)
      return static_cast<float>(value_of<Format>(x));
    else
      return x;
  }
  static Element narrow(Math x) {
    if constexpr (kIsHalf)
      return nearest<Format>(x);
    else
      return x;
  }
  static std::vector<Element> numbers(std::size_t n, std::mt19937_64& random, bool strange) {
    const auto seed = static_cast<std::uint32_t>(random());
    const auto wide = dt::kv::numbers<Math>(n, seed, strange);
    std::vector<Element> out;
    for (const Math x : wide) out.push_back(narrow(x));
    return out;
  }
  static std::vector<Math> widened(const std::vector<Element>& values) {
    std::vector<Math> out;
    for (const Element x : values) out.push_back(widen(x));
    return out;
  }
  static std::uint64_t count_nonfinite(const std::vector<Element>& values) {
    std::uint64_t count = 0;
    for (const Element x : values) count += std::isfinite(widen(x)) ? 0 : 1;
    return count;
  }
};

}  // namespace dt::kv::cuda
