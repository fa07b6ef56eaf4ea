#include "io/last_words.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/line_prefixer.h"

namespace dt::io {

std::string last_line(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  return on_one_line(text.substr(text.rfind('\n') + 1), std::string::npos);
}

std::string on_one_line(std::string_view text, std::size_t most) {
  constexpr std::string_view kSpace = " \t\r";
  constexpr std::string_view kGap = " ... ";
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line.remove_prefix(std::min(line.find_first_not_of(kSpace), line.size()));
    line.remove_suffix(line.size() - (line.find_last_not_of(kSpace) + 1));
    const bool is_rule = line.find_first_not_of("-=*#") == std::string_view::npos;
    if (!is_rule) out.append(out.empty() ? "" : " ").append(line);
  }
  if (out.size() <= most) return plain(out);
  const std::size_t half = (most - std::min(most, kGap.size())) / 2;
  return plain(fmt::format("{}{}{}", std::string_view(out).substr(0, half), kGap,
                           std::string_view(out).substr(out.size() - half)));
}

}  // namespace dt::io
