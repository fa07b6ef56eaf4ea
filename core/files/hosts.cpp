#include "core/files/hosts.h"

#include <algorithm>
#include <map>
#include <span>

#include "core/base/number.h"

namespace dt {
namespace {

constexpr std::size_t kMostHosts = 65536;
constexpr std::uint32_t kMostSlots = 10'000;  ///< Per line: sums stay far below 2^32.
constexpr std::size_t kLongestName = 253;     ///< As DNS has it.

using Text = std::string_view;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_char(char c) {
  return is_digit(c) || is_letter(c) || c == '.' || c == '-' || c == '_';
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f'; }

/// Bytes from a file, fit for a terminal.
std::string shown(Text text) {
  constexpr std::size_t kLongest = 80;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    if (c >= ' ' && c <= '~')
      out.push_back(c);
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return text.size() > kLongest ? out + "..." : out;
}

std::optional<std::uint32_t> number(Text text, std::uint32_t most) {
  const auto value = parse_number<std::uint32_t>(text);
  return value <= most ? value : std::nullopt;
}

/// A mistake and where in the line it begins.
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
std::optional<std::vector<std::string>> expand(const std::vector<Piece>& pieces, std::size_t most) {
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
  const bool numeric =
      std::all_of(name.begin(), name.end(), [](char c) { return is_digit(c) || c == '.'; });
  if (!numeric || std::count(name.begin(), name.end(), '.') != 3 || name.back() == '.') return "";
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const Text part = name.substr(begin, end - begin);
    // A leading zero would mean octal to the resolver.
    if (!number(part, 255) || (part.size() > 1 && part.front() == '0'))
      return fmt::format("\"{}\" is no IPv4 address: four numbers 0 to 255 without leading zeros",
                         shown(name));
    begin = end + 1;
  }
  return "";
}

bool is_ipv6(Text text) {
  const std::size_t zone = std::min(text.find('%'), text.size());
  const Text address = text.substr(0, zone);
  const Text rest = zone < text.size() ? text.substr(zone + 1) : Text("lo");
  const auto hex = [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') || c == ':' || c == '.';
  };
  return std::count(address.begin(), address.end(), ':') >= 2 &&
         std::all_of(address.begin(), address.end(), hex) && !rest.empty() &&
         std::all_of(rest.begin(), rest.end(), is_name_char);
}

/// Every host that the word, which begins at `at`, stands for.
Parsed<std::vector<Host>> parse_host(Text word, std::size_t at, std::size_t most) {
  Host host;
  if (const std::size_t sign = word.rfind('@'); sign != Text::npos) {
    const Text user = word.substr(0, sign);
    if (user.empty()) return mistake(at, "a user's name is missing before \"@\"");
    const auto bad = [](char c) { return c <= ' ' || c > '~' || c == ':' || c == '[' || c == ']'; };
    if (user.front() == '-' || std::any_of(user.begin(), user.end(), bad))
      return mistake(at, "\"{}\" is no user's name", shown(user));
    host.user = user;
    word.remove_prefix(sign + 1);
    at += sign + 1;
  }
  if (word.empty()) return mistake(at, "a host's name is missing after \"@\"");

  const std::size_t close = word.find(']');
  const bool bracketed =
      word.front() == '[' && close != Text::npos && word.substr(0, close).find(':') != Text::npos;
  const std::size_t colon = word.find(':', bracketed ? close : 0);
  if (!bracketed && std::count(word.begin(), word.end(), ':') > 1)
    return mistake(at, "\"{}\": write an IPv6 address in brackets, as in [fe80::1]", shown(word));
  const Text name = word.substr(0, colon);
  if (colon != Text::npos) {
    const auto port = number(word.substr(colon + 1), 65535);
    if (!port || *port == 0)
      return mistake(at + colon + 1, "\"{}\" is no port: a number 1 to 65535 was expected",
                     shown(word.substr(colon + 1)));
    host.port = static_cast<std::uint16_t>(*port);
  }
  if (name.empty()) return mistake(at, "a host's name is missing before \":\"");
  if (bracketed) {
    const Text address = name.substr(1, close - 1);
    if (close + 1 != name.size())
      return mistake(at + close + 1, "\"{}\": only \":port\" may follow an IPv6 address",
                     shown(name.substr(close + 1)));
    if (!is_ipv6(address)) return mistake(at + 1, "\"{}\" is no IPv6 address", shown(address));
    host.name = address;
    return std::vector<Host>{host};
  }
  const auto pieces = parse_name(name, at);
  if (!pieces) return tl::unexpected(pieces.error());
  if (least_length(*pieces) > kLongestName)
    return mistake(at, "a host's name has at most {} characters", kLongestName);
  const auto names = expand(*pieces, most);
  if (!names) return mistake(at, "the list would have more than {} hosts", kMostHosts);
  std::vector<Host> hosts;
  for (const auto& each : *names) {
    if (auto why = bad_name(each); !why.empty()) return mistake(at, "{}", why);
    host.name = each;
    hosts.push_back(host);
  }
  return hosts;
}

/// A word of a line and where it begins.
struct Word {
  std::size_t at = 0;
  Text text;
};

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

Parsed<std::optional<std::uint32_t>> parse_slots(std::span<const Word> words) {
  std::optional<std::uint32_t> slots;
  for (const Word& word : words) {
    constexpr Text kSlots = "slots=";
    if (!word.text.starts_with(kSlots))
      return mistake(word.at, "\"{}\" was not expected: a line is [user@]host[:port] [slots=N]",
                     shown(word.text));
    if (slots) return mistake(word.at, "slots= is given twice");
    slots = number(word.text.substr(kSlots.size()), kMostSlots);
    if (!slots || *slots == 0)
      return mistake(word.at + kSlots.size(), "\"{}\" is no number of slots: 1 to {} was expected",
                     shown(word.text.substr(kSlots.size())), kMostSlots);
  }
  return slots;
}

Parsed<std::vector<HostLine>> parse_line(Text line, std::uint32_t line_number, std::size_t most) {
  const auto words = split(line.substr(0, line.find('#')));
  std::vector<HostLine> lines;
  if (words.empty()) return lines;
  auto hosts = parse_host(words[0].text, words[0].at, most);
  if (!hosts) return tl::unexpected(hosts.error());
  const auto slots = parse_slots(std::span(words).subspan(1));
  if (!slots) return tl::unexpected(slots.error());
  for (auto& host : *hosts) lines.push_back({std::move(host), *slots, line_number});
  return lines;
}

}  // namespace

std::string to_string(const Host& host) {
  std::string out;
  if (!host.user.empty()) out = host.user + "@";
  out += host.name.find(':') == std::string::npos ? host.name : "[" + host.name + "]";
  if (host.port != 0) out += fmt::format(":{}", host.port);
  return out;
}

Result<std::vector<HostLine>> parse_hosts(std::string_view text, std::string_view file) {
  constexpr Text kByteOrderMark = "\xef\xbb\xbf";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<HostLine> all;
  for (std::uint32_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    auto lines = parse_line(text.substr(0, end), line, kMostHosts - all.size());
    if (!lines)
      return fail(ErrorKind::kInvalid, "{}:{}:{}: {}", file, line, lines.error().at + 1,
                  lines.error().why);
    if (all.size() + lines->size() > kMostHosts)
      return fail(ErrorKind::kInvalid, "{}:{}:1: the list would have more than {} hosts", file,
                  line, kMostHosts);
    std::move(lines->begin(), lines->end(), std::back_inserter(all));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return all;
}

std::vector<HostSlots> sum_slots(const std::vector<HostLine>& lines) {
  std::vector<HostSlots> sums;
  std::map<Host, std::size_t> index;
  for (const HostLine& line : lines) {
    const auto [known, is_new] = index.try_emplace(line.host, sums.size());
    if (is_new) sums.push_back({line.host, 0});
    sums[known->second].slots += line.slots.value_or(1);
  }
  return sums;
}

std::vector<HostLine> with_known_ports(std::vector<HostLine> lines,
                                       const std::vector<Host>& known) {
  std::map<Text, const Host*> by_name;  // null: several hosts have the name
  for (const Host& host : known) {
    const auto [entry, is_new] = by_name.try_emplace(host.name, &host);
    if (!is_new && entry->second && *entry->second != host) entry->second = nullptr;
  }
  for (HostLine& line : lines) {
    const auto entry = by_name.find(line.host.name);
    if (entry == by_name.end() || !entry->second) continue;
    if (line.host.user.empty()) line.host.user = entry->second->user;
    if (line.host.port == 0) line.host.port = entry->second->port;
  }
  return lines;
}

Result<std::vector<Host>> place_workers(const std::vector<HostLine>& lines, std::uint32_t count) {
  const auto hosts = sum_slots(lines);
  std::uint64_t slots = 0;
  for (const auto& host : hosts) slots += host.slots;
  const bool limited =
      std::any_of(lines.begin(), lines.end(), [](const auto& line) { return line.slots; });
  if (count > 0 && hosts.empty())
    return fail(ErrorKind::kInvalid, "there is no host for {} workers", count);
  if (limited && count > slots)
    return fail(ErrorKind::kInvalid,
                "{} workers were asked for but the hosts have {} slots: add hosts, raise slots=N, "
                "or ask for fewer",
                count, slots);
  std::uint32_t rounds = 1;  // after so many all slots are filled: without limit they begin again
  for (const auto& host : hosts) rounds = std::max(rounds, host.slots);
  std::vector<Host> workers;
  for (std::uint32_t round = 0; workers.size() < count; round = (round + 1) % rounds)
    for (const auto& host : hosts)
      if (round < host.slots && workers.size() < count) workers.push_back(host.host);
  return workers;
}

std::string at_host(const Host& host, const std::string& why) {
  const std::string name = to_string(host);
  return why.starts_with(name + ":") ? why : fmt::format("{}: {}", name, why);
}

std::string join_hosts(const std::vector<HostSlots>& hosts) {
  std::vector<std::string> out;
  for (const HostSlots& s : hosts)
    out.push_back(s.slots == 1 ? to_string(s.host) : fmt::format("{} x{}", s.host, s.slots));
  return fmt::format("{}", fmt::join(out, ", "));
}

std::string format_host_worker(const std::vector<Host>& workers) {
  std::string text;
  for (const Host& worker : workers) text += to_string(worker) + "\n";
  return text;
}

}  // namespace dt
