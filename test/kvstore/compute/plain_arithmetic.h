/// The reference of the arithmetic: numbers, plain loops over elements, comparison of bits. Files
/// that use it are compiled with -ffp-contract=off: each operation rounds once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "kvstore/compute/kernels/kernels.h"

namespace dt::kv {

/// Ordinary numbers of all sizes with every kind of strange one among them.
template <class T>
std::vector<T> numbers(std::size_t n, std::uint32_t seed, bool strange = true) {
  using Limits = std::numeric_limits<T>;
  const T kinds[] = {T{0},
                     -T{0},
                     Limits::infinity(),
                     -Limits::infinity(),
                     Limits::quiet_NaN(),
                     Limits::denorm_min(),
                     -Limits::denorm_min(),
                     Limits::min() / 2,
                     Limits::max(),
                     Limits::lowest(),
                     Limits::min()};
  std::mt19937 random(seed);
  std::vector<T> out(n);
  for (auto& x : out) {
    const auto draw = random();
    if (strange && draw % 8 == 0) {
      x = kinds[(draw >> 3) % std::size(kinds)];
      continue;
    }
    x = static_cast<T>(static_cast<double>(static_cast<std::int32_t>(random())) * 0x1p-31);
    x = std::ldexp(x, static_cast<int>(draw >> 8) % 12 - 6);
  }
  return out;
}

/// Equal in every bit; which NaN it is does not matter.
template <class T>
bool same(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// "" or the first difference.
template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& wanted) {
  if (got.size() != wanted.size()) return "different sizes";
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same(got[i], wanted[i]))
      return "element " + std::to_string(i) + " of " + std::to_string(got.size()) + ": " +
             std::to_string(got[i]) + " instead of " + std::to_string(wanted[i]);
  return {};
}

/// The sum, one element at a time.
template <class T>
std::vector<T> plain_sum(const std::vector<std::vector<T>>& sources, const std::vector<T>& weights,
                         T divisor) {
  std::vector<T> out(sources.front().size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    T x = 0;
    for (std::size_t k = 0; k < sources.size(); ++k) {
      const T product = weights.empty() ? sources[k][i] : weights[k] * sources[k][i];
      x = k == 0 ? product : x + product;
    }
    out[i] = x / divisor;
  }
  return out;
}

/// The rule of SgdStep for one element.
template <class T>
void plain_sgd(T& w, T& m, T gradient, const SgdStep<T>& step) {
  T g = gradient + step.weight_decay * w;
  if (step.momentum != 0) {
    m = step.momentum * m + g;
    g = step.nesterov ? g + step.momentum * m : m;
  }
  w = w - step.learning_rate * g;
}

/// The rule of AdamStep.
template <class T>
void plain_adam(T& w, T& m, T& v, T gradient, const AdamStep<T>& step) {
  w = w * step.keep;
  const T g = gradient + step.weight_decay * w;
  m = step.beta1 * m + step.rest1 * g;
  v = step.beta2 * v + step.rest2 * (g * g);
  w = w - step.step * (m / (std::sqrt(v) * step.root_scale + step.eps));
}

}  // namespace dt::kv
