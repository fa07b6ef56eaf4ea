/// Seeded numbers, the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/time.h"

namespace dt::sim {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 0x1234567U) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  /// Both ends included.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    return low + next() % (high - low + 1);
  }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < p; }
  Duration time(Duration low, Duration high) {
    return low + Duration(static_cast<Duration::rep>(
                     next() % static_cast<std::uint64_t>((high - low).count() + 1)));
  }
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[between(0, from.size() - 1)];
  }

 private:
  std::uint64_t state_;
};

/// The seed of a range's run with this number. Neighbours as seeds would give each other's numbers,
/// one later.
inline std::uint64_t seed_of(std::uint64_t number) { return Random(number).next(); }

}  // namespace dt::sim
