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

template <class Half>
bool is_nan(std::uint16_t half) {
  constexpr int kFraction = HalfShape<Half>::kFraction;
  const int exponent = (half & 0x7fff) >> kFraction;
  return exponent == 2 * HalfShape<Half>::kBias + 1 && (half & ((1 << kFraction) - 1)) != 0;
}

/// What the code stands for.
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
  // A carry goes into the exponent; a subnormal has one step less of it.
  const int code = ((exponent + kBias - 1) << kFraction) + steps;
  return static_cast<std::uint16_t>(sign | std::min(code, kInfinity));
}

/// The same, but a finite number becomes no infinity: it is the largest code's then.
template <class Half>
std::uint16_t nearest_finite(double x) {
  const auto code = nearest<Half>(x);
  const bool is_too_large = std::isfinite(x) && !std::isfinite(value_of<Half>(code));
  return static_cast<std::uint16_t>(is_too_large ? code - 1 : code);
}

/// What the checks need of a format: numbers in it, what they are worth, equality.
template <class Format>
struct Plain {
  using Element = typename Format::Element;
  using Math = typename Format::Math;
  static constexpr bool kIsHalf = sizeof(Element) == 2;

  /// The largest relative error of a rounding to this format.
  static double unit() {
    if constexpr (kIsHalf)
      return std::ldexp(1.0, -HalfShape<Format>::kFraction - 1);
    else
      return static_cast<double>(std::numeric_limits<Math>::epsilon()) / 2;
  }
  /// The largest error where numbers are subnormal.
  static double tiny() {
    if constexpr (kIsHalf)
      return std::ldexp(1.0, -HalfShape<Format>::kBias - HalfShape<Format>::kFraction);
    else
      return static_cast<double>(std::numeric_limits<Math>::denorm_min());
  }
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
  /// Equal in every bit; which NaN it is does not matter.
  static bool is_same(Element a, Element b) {
    if constexpr (kIsHalf)
      return a == b || (is_nan<Format>(a) && is_nan<Format>(b));
    else
      return same(a, b);
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
  static std::vector<Element> narrowed(const std::vector<Math>& values) {
    std::vector<Element> out;
    for (const Math x : values) out.push_back(narrow(x));
    return out;
  }
  static std::uint64_t count_nonfinite(const std::vector<Element>& values) {
    std::uint64_t count = 0;
    for (const Element x : values) count += std::isfinite(widen(x)) ? 0 : 1;
    return count;
  }
  /// "" or the first difference.
  static std::string difference(const std::vector<Element>& got,
                                const std::vector<Element>& wanted) {
    if (got.size() != wanted.size()) return "different sizes";
    for (std::size_t i = 0; i < got.size(); ++i)
      if (!is_same(got[i], wanted[i]))
        return "element " + std::to_string(i) + " of " + std::to_string(got.size()) + ": " +
               std::to_string(widen(got[i])) + " instead of " + std::to_string(widen(wanted[i]));
    return {};
  }
};

}  // namespace dt::kv::cuda
