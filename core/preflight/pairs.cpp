#include "core/preflight/pairs.h"

#include <set>

namespace dt::preflight {

std::vector<Pair> pairs_to_try(const std::vector<std::size_t>& from,
                               const std::vector<std::size_t>& to) {
  std::vector<Pair> pairs;
  if (from.size() * to.size() <= kMostPairs) {
    for (const std::size_t a : from)
      for (const std::size_t b : to)
        if (a != b) pairs.emplace_back(a, b);
    return pairs;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::set<std::size_t> tried;
    // Steps that are prime to most sizes reach all of `to`.
    for (const std::size_t step : {std::size_t{1}, 7 + i % 3, 31 + i % 7, 101 + i % 13}) {
      const std::size_t b = to[(i + step) % to.size()];
      if (b != from[i] && tried.insert(b).second) pairs.emplace_back(from[i], b);
    }
  }
  return pairs;
}

}  // namespace dt::preflight
