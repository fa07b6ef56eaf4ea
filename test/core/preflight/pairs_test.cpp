#include "core/preflight/pairs.h"

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

}  // namespace dt::preflight
