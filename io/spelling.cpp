#include "io/spelling.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace dt::io {
namespace {

/// Shorter words differ from every name by a few letters only.
constexpr std::size_t kShortest = 3;
/// A shorter word is the beginning of a name only without a mistake.
constexpr std::size_t kShortestBeginning = 5;

/// How many mistakes a word may have and still mean that name.
std::size_t most_mistakes(std::size_t letters) { return letters < 5 ? 1 : letters < 9 ? 2 : 3; }

/// Letters to change, leave out or add to make one of the other.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j - 1] + 1, row[j] + 1, changed});
    }
  }
  return row.back();
}

/// How many mistakes lie between a word and the beginning of a longer name: --elstic means
/// --elastic-training-enabled. A beginning identifies less than a whole name: fewer are allowed.
std::size_t distance_to_beginning(std::string_view word, std::string_view name) {
  if (name.starts_with(word)) return 0;
  std::size_t least = word.size();
  if (word.size() < kShortestBeginning || name.size() <= word.size()) return least;
  for (std::size_t end = word.size() - 1; end <= word.size() + 1; ++end)
    least = std::min(least, edit_distance(word, name.substr(0, end)));
  return least <= 1 ? least : word.size();
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view word,
                                        const std::vector<std::string>& names) {
  if (word.size() < kShortest) return std::nullopt;
  std::optional<std::string> best;
  std::size_t least = most_mistakes(word.size()) + 1;
  for (const std::string& name : names) {
    const std::size_t distance =
        std::min(edit_distance(word, name), distance_to_beginning(word, name));
    if (distance >= least) continue;
    least = distance;
    best = name;
  }
  return best;
}

}  // namespace dt::io
