#include "core/files/host_names.h"

#include <algorithm>

#include "core/base/number.h"

namespace dt::host_names {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/// A piece of a name: literal text, or the values a range stands for.
struct Range {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::size_t width = 0;  ///< Zero-padded to so many digits.
};
struct Piece {
  std::string literal;
  std::vector<Range> ranges;  ///< Empty: the literal counts.
};

/// "1,3,5-7": the inside of brackets that begin before `at`.
Parsed<std::vector<Range>> parse_ranges(Text text, std::size_t at) {
  constexpr std::uint32_t kMostNumber = 999'999'999;
  std::vector<Range> ranges;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const Text part = text.substr(begin, end - begin);
    const std::size_t dash = std::min(part.find('-'), part.size());
    const Text low = part.substr(0, dash);
    const Text high = dash < part.size() ? part.substr(dash + 1) : low;
    const auto from = number(low, kMostNumber);
    const auto to = number(high, kMostNumber);
    if (!from || !to)
      return mistake(at + begin, "\"{}\" is no range: write numbers like [01-16] or [1,3,5-7]",
                     shown(part));
    if (*from > *to)
      return mistake(at + begin, "the range \"{}\" runs backwards: write the smaller number first",
                     shown(part));
    ranges.push_back({*from, *to, low.front() == '0' ? low.size() : 1});
    begin = end + 1;
  }
  return ranges;
}

Parsed<std::vector<Piece>> parse_name(Text text, std::size_t at) {
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '[') {
      const std::size_t close = text.find(']', i);
      if (close == Text::npos) return mistake(at + i, "\"[\" has no matching \"]\"");
      auto ranges = parse_ranges(text.substr(i + 1, close - i - 1), at + i + 1);
      if (!ranges) return tl::unexpected(ranges.error());
      pieces.push_back({"", std::move(*ranges)});
      i = close + 1;
    } else {
      const std::size_t begin = i;
      while (i < text.size() && is_name_char(text[i])) ++i;
      if (i == begin)
        return mistake(at + i,
                       "\"{}\" may not stand in a host's name: letters, digits, \".\", \"-\" and "
                       "\"_\" may",
                       shown(text.substr(i, 1)));
      pieces.push_back({std::string(text.substr(begin, i - begin)), {}});
    }
  }
  return pieces;
}

/// The least length of the names the pieces stand for: what their expansion costs per name.
std::size_t least_length(const std::vector<Piece>& pieces) {
  std::size_t length = 0;
  for (const Piece& piece : pieces) {
    std::size_t widest = piece.literal.size();
    for (const Range& r : piece.ranges) widest = std::max(widest, r.width);
    length += widest;
  }
  return length;
}

/// Every name the pieces stand for, the first range slowest; nothing if there are more than `most`.
std::optional<std::vector<std::string>> combine(const std::vector<Piece>& pieces,
                                                std::size_t most) {
  std::uint64_t total = 1;
  for (const Piece& piece : pieces) {
    if (piece.ranges.empty()) continue;
    std::uint64_t values = 0;
    for (const Range& r : piece.ranges) values += std::uint64_t{r.high} - r.low + 1;
    if (values > most) return std::nullopt;
    total *= values;
    if (total > most) return std::nullopt;
  }
  std::vector<std::string> names = {""};
  for (const Piece& piece : pieces) {
    if (piece.ranges.empty()) {
      for (auto& name : names) name += piece.literal;
      continue;
    }
    std::vector<std::string> longer;
    for (const auto& name : names)
      for (const Range& r : piece.ranges)
        for (std::uint32_t v = r.low; v <= r.high; ++v)
          longer.push_back(fmt::format("{}{:0{}}", name, v, r.width));
    names = std::move(longer);
  }
  return names;
}

/// Why `name`, ranges expanded, cannot be a host; empty if it can.
std::string bad_name(Text name) {
  if (name.size() > kLongestName)
    return fmt::format("a host's name has at most {} characters", kLongestName);
  if (!is_digit(name.front()) && !is_letter(name.front()) && name.front() != '_')
    return fmt::format("\"{}\": a host's name begins with a letter or a digit", shown(name));
  const bool numeric = std::ranges::all_of(name, [](char c) { return is_digit(c) || c == '.'; });
  if (!numeric || std::ranges::count(name, '.') != 3 || name.back() == '.') return "";
  for (Text rest = name; !rest.empty();) {
    const Text part = take_until(rest, '.');
    // A leading zero would mean octal to the resolver.
    if (!number(part, 255) || (part.size() > 1 && part.front() == '0'))
      return fmt::format("\"{}\" is no IPv4 address: four numbers 0 to 255 without leading zeros",
                         shown(name));
  }
  return "";
}

}  // namespace

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_char(char c) {
  return is_digit(c) || is_letter(c) || c == '.' || c == '-' || c == '_';
}

std::string shown(Text text, std::size_t most) {
  std::string out;
  for (const char c : text.substr(0, most)) {
    if (c >= ' ' && c <= '~')
      out.push_back(c);
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > most ? out + "..." : out;
}

Text take_until(Text& text, char end) {
  const std::size_t at = std::min(text.find(end), text.size());
  const Text piece = text.substr(0, at);
  text.remove_prefix(std::min(at + 1, text.size()));
  return piece;
}

std::optional<std::uint32_t> number(Text text, std::uint32_t most) {
  const auto value = parse_number<std::uint32_t>(text);
  return value <= most ? value : std::nullopt;
}

Parsed<std::uint32_t> parse_slots(Text text, std::size_t at) {
  const auto slots = number(text, kMostSlots);
  if (!slots || *slots == 0)
    return mistake(at, "\"{}\" is no number of slots: 1 to {} was expected", shown(text),
                   kMostSlots);
  return *slots;
}

std::vector<Word> split(Text line) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < line.size();) {
    const std::size_t begin = i;
    while (i < line.size() && !is_blank(line[i])) ++i;
    if (i > begin) words.push_back({begin, line.substr(begin, i - begin)});
    while (i < line.size() && is_blank(line[i])) ++i;
  }
  return words;
}

Parsed<std::vector<std::string>> expand(Text word, std::size_t at, std::size_t most) {
  if (word.empty()) return mistake(at, "a host's name was expected");
  const auto pieces = parse_name(word, at);
  if (!pieces) return tl::unexpected(pieces.error());
  if (least_length(*pieces) > kLongestName)
    return mistake(at, "a host's name has at most {} characters", kLongestName);
  auto names = combine(*pieces, most);
  if (!names) return mistake(at, "the list would have more than {} hosts", kMostHosts);
  for (const auto& name : *names)
    if (auto why = bad_name(name); !why.empty()) return mistake(at, "{}", why);
  return std::move(*names);
}

Parsed<std::vector<std::string>> expand_list(Text text) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin <= text.size() && !text.empty();) {
    std::size_t end = begin;
    for (bool inside = false; end < text.size() && (inside || text[end] != ','); ++end)
      inside = text[end] == '[' || (inside && text[end] != ']');
    auto names = expand(text.substr(begin, end - begin), begin, kMostHosts - all.size());
    if (!names) return names;
    std::move(names->begin(), names->end(), std::back_inserter(all));
    begin = end + 1;
  }
  return all;
}

}  // namespace dt::host_names
