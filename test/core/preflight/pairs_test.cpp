#include "core/preflight/pairs.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "test/support/catch.h"

namespace dt::preflight {
namespace {

std::vector<std::size_t> numbers(std::size_t count) {
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

TEST_CASE("preflight pairs: all of them, while they are few") {
  CHECK(pairs_to_try(numbers(3), {1}) == std::vector<Pair>{{0, 1}, {2, 1}});
  CHECK(pairs_to_try(numbers(64), numbers(64)).size() == 64 * 63);
}

TEST_CASE("preflight pairs: of many hosts each tries a few, and each is tried") {
  const auto pairs = pairs_to_try(numbers(1000), numbers(1000));
  CHECK(pairs.size() <= 4000);
  std::set<std::size_t> from;
  std::set<std::size_t> to;
  for (const auto& [a, b] : pairs) {
    CHECK(a != b);
    from.insert(a);
    to.insert(b);
  }
  CHECK(from.size() == 1000);
  CHECK(to.size() == 1000);
}

TEST_CASE("preflight pairs: a ring's rounds have each host once, and each meets both neighbours") {
  CHECK(ring_rounds(1).empty());
  for (std::size_t count = 2; count < 10; ++count) {
    std::set<Pair> met;
    for (const auto& round : ring_rounds(count)) {
      std::set<std::size_t> busy;
      for (const auto& [a, b] : round) {
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        CHECK(met.insert(std::minmax(a, b)).second);
      }
    }
    CHECK(met.size() == (count == 2 ? 1 : count));
    CHECK(ring_rounds(count).size() <= 3);
  }
}

TEST_CASE("preflight pairs: a suspect meets another partner than its neighbours") {
  const auto rounds = second_partners({2, 3}, {0, 1, 4, 5, 6}, 7);
  REQUIRE(rounds.size() == 1);
  for (const auto& [suspect, partner] : rounds.front()) {
    CHECK(partner != suspect + 1);
    CHECK(partner + 1 != suspect);
  }
  // Of three hosts there is none.
  CHECK(second_partners({1}, {0}, 3) == std::vector<std::vector<Pair>>{{{1, 0}}});
  CHECK(second_partners({0, 1}, {}, 2).empty());
}

}  // namespace dt::preflight
