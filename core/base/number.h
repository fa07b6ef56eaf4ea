/// Numbers in text.
#pragma once

#include <charconv>
#include <concepts>
#include <optional>
#include <string_view>

namespace dt {

/// Cuts the number that `text` begins with off it; nothing if there is none or it does not fit.
/// `base` is that of whole numbers.
template <class Number>
[[nodiscard]] std::optional<Number> take_number(std::string_view& text, int base = 10) {
  Number value{};
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::integral<Number>)
    read = std::from_chars(text.data(), end, value, base);
  else
    read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc{}) return std::nullopt;
  text = {read.ptr, static_cast<std::size_t>(end - read.ptr)};
  return value;
}

/// The number that all of `text` is.
template <class Number>
[[nodiscard]] std::optional<Number> parse_number(std::string_view text, int base = 10) {
  const auto value = take_number<Number>(text, base);
  return text.empty() ? value : std::nullopt;
}

}  // namespace dt
