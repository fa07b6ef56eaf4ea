#include "core/preflight/pairs.h"

#include <algorithm>
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

std::vector<std::vector<Pair>> ring_rounds(std::size_t count) {
  if (count < 2) return {};
  if (count == 2) return {{{0, 1}}};
  std::vector<std::vector<Pair>> rounds(2);
  for (std::size_t i = 0; i + 1 < count; ++i) rounds[i % 2].emplace_back(i, i + 1);
  const Pair last{count - 1, 0};
  if (count % 2 == 0)
    rounds[1].push_back(last);
  else
    rounds.push_back({last});
  return rounds;
}

std::vector<std::vector<Pair>> second_partners(const std::vector<std::size_t>& suspects,
                                               const std::vector<std::size_t>& others,
                                               std::size_t count) {
  std::vector<std::vector<Pair>> rounds;
  std::vector<std::set<std::size_t>> busy;
  const auto are_neighbours = [count](std::size_t a, std::size_t b) {
    return (a + 1) % count == b || (b + 1) % count == a;
  };
  std::size_t turn = 0;
  for (const std::size_t suspect : suspects) {
    std::vector<std::size_t> partners;
    for (const std::size_t other : others)
      if (other != suspect && !are_neighbours(suspect, other)) partners.push_back(other);
    if (partners.empty())
      for (const std::size_t other : others)
        if (other != suspect) partners.push_back(other);
    if (partners.empty()) continue;
    const std::size_t partner = partners[turn++ % partners.size()];
    std::size_t round = 0;
    while (round < busy.size() && (busy[round].contains(suspect) || busy[round].contains(partner)))
      ++round;
    if (round == busy.size()) {
      busy.emplace_back();
      rounds.emplace_back();
    }
    busy[round].insert({suspect, partner});
    rounds[round].emplace_back(suspect, partner);
  }
  return rounds;
}

}  // namespace dt::preflight
