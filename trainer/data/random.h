/// Random numbers that are the same on every machine and compiler, so that all workers shuffle
/// alike (std:: distributions do not guarantee this). Not for secrets.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <numeric>
#include <vector>

namespace dt::train {

/// splitmix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  /// In [0, n); n > 0. The bias of the remainder is far below what training could notice.
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  /// In [0, 1).
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  /// Mean 0, standard deviation 1.
  double normal() {
    return std::sqrt(-2.0 * std::log(1.0 - uniform())) *
           std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

/// 0..n-1 in an order that depends on `seed` alone.
[[nodiscard]] inline std::vector<std::uint32_t> shuffled(std::uint32_t n, std::uint64_t seed) {
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0U);
  Random random(seed);
  for (std::uint32_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

}  // namespace dt::train
