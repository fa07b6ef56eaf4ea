/// The grammar of hosts' names, which hosts files and schedulers share: names of letters, digits,
/// ".", "-" and "_", with ranges as in rack[0-1]n[01-16] or gpu[1,3,5-7]. Pure text work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::host_names {

inline constexpr std::size_t kMostHosts = 65536;
inline constexpr std::uint32_t kMostSlots = 10'000;  ///< A host's: sums stay far below 2^32.
inline constexpr std::size_t kLongestName = 253;     ///< As DNS has it.

using Text = std::string_view;

/// A mistake and where in the text it begins, from 0.
struct Mistake {
  std::size_t at = 0;
  std::string why;
};
template <class T>
using Parsed = tl::expected<T, Mistake>;

template <class... Args>
tl::unexpected<Mistake> mistake(std::size_t at, fmt::format_string<Args...> text, Args&&... args) {
  return tl::unexpected(Mistake{at, fmt::format(text, std::forward<Args>(args)...)});
}

[[nodiscard]] bool is_digit(char c);
[[nodiscard]] bool is_name_char(char c);
/// Bytes from outside, fit for a terminal; `most` of them at most.
[[nodiscard]] std::string shown(Text text, std::size_t most = 80);
/// The next piece of `text` up to `end`, both of which are taken out of it.
Text take_until(Text& text, char end);
/// A whole number up to `most`.
[[nodiscard]] std::optional<std::uint32_t> number(Text text, std::uint32_t most);

/// A host's slots: a number from 1 to kMostSlots.
[[nodiscard]] Parsed<std::uint32_t> parse_slots(Text text, std::size_t at);

/// A word of a line and where it begins.
struct Word {
  std::size_t at = 0;
  Text text;
};
/// What stands between blanks.
[[nodiscard]] std::vector<Word> split(Text line);

/// Every name that the word stands for, the first range slowest; at most `most`. The word begins at
/// `at`. No memory is taken for names before their number and length are known to be bounded.
[[nodiscard]] Parsed<std::vector<std::string>> expand(Text word, std::size_t at, std::size_t most);

/// "n[1-2,7],a": words with commas between; none in an empty text. `text` may be as long as an
/// environment has room for.
[[nodiscard]] Parsed<std::vector<std::string>> expand_list(Text text);

}  // namespace dt::host_names
