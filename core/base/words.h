/// Words in text.
#pragma once

#include <algorithm>
#include <string_view>

namespace dt {

/// Cuts the first word off `text`, with the blanks before it; empty: there is no more.
[[nodiscard]] inline std::string_view next_word(std::string_view& text) {
  constexpr std::string_view kBlank = " \t\r";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlank));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace dt
