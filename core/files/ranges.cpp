#include "core/files/ranges.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>

#include "core/base/number.h"

namespace dt {
namespace {

/// Digits of the largest number that the hosts grammar takes.
constexpr std::size_t kMostDigits = 9;

bool is_numeral(char c) { return c >= '0' && c <= '9'; }

/// A part of a name: a number as it is written, or what stands between numbers.
struct Field {
  std::string text;
  std::optional<std::uint32_t> number;

  /// Numbers by their values, 7 before 007.
  friend auto operator<=>(const Field& a, const Field& b) {
    return std::tuple(a.number, a.number ? a.text.size() : 0, std::string_view(a.text)) <=>
           std::tuple(b.number, b.number ? b.text.size() : 0, std::string_view(b.text));
  }
  friend bool operator==(const Field&, const Field&) = default;
};

std::vector<Field> fields_of(std::string_view name) {
  std::vector<Field> fields;
  const bool is_ipv6 = name.find(':') != std::string_view::npos;
  if (is_ipv6) return {{std::string(name), std::nullopt}};
  while (!name.empty()) {
    const auto end = std::ranges::find_if(
        name, [&name](char c) { return is_numeral(c) != is_numeral(name.front()); });
    const std::string_view text = name.substr(0, static_cast<std::size_t>(end - name.begin()));
    Field field{std::string(text), std::nullopt};
    if (is_numeral(text.front()) && text.size() <= kMostDigits)
      field.number = parse_number<std::uint32_t>(text);
    fields.push_back(std::move(field));
    name.remove_prefix(text.size());
  }
  return fields;
}

struct Name {
  Host host;
  std::vector<Field> fields;
};

auto order(const Name& name) { return std::tie(name.host.user, name.host.port, name.fields); }

/// The field of `a` and `b` that differs, if it is the only one, and a number in both.
std::optional<std::size_t> only_difference(const Name& a, const Name& b) {
  if (a.host.user != b.host.user || a.host.port != b.host.port ||
      a.fields.size() != b.fields.size())
    return std::nullopt;
  std::optional<std::size_t> differs;
  for (std::size_t i = 0; i < a.fields.size(); ++i) {
    if (a.fields[i] == b.fields[i]) continue;
    if (differs || !a.fields[i].number || !b.fields[i].number) return std::nullopt;
    differs = i;
  }
  return differs;
}

/// Numbers that follow one another: the first as it is written, the last by its value.
struct Run {
  std::string first;
  std::uint32_t last = 0;

  /// Whether `next` is the following number, as an expansion of the run would write it.
  [[nodiscard]] bool is_followed_by(const Field& next) const {
    const std::size_t width = first.front() == '0' ? first.size() : 1;
    return *next.number == last + 1 && next.text == fmt::format("{:0{}}", last + 1, width);
  }
  [[nodiscard]] std::string text() const {
    const std::size_t width = first.front() == '0' ? first.size() : 1;
    const std::string end = fmt::format("{:0{}}", last, width);
    return first == end ? first : first + "-" + end;
  }
};

/// The names from `begin` on, which differ in their field `at` alone.
std::string folded(const std::vector<Name>& names, std::size_t begin, std::size_t end,
                   std::size_t at) {
  std::vector<Run> runs;
  for (std::size_t i = begin; i < end; ++i) {
    const Field& field = names[i].fields[at];
    if (!runs.empty() && runs.back().is_followed_by(field))
      runs.back().last = *field.number;
    else
      runs.push_back({field.text, *field.number});
  }
  std::string ranges;
  for (const Run& run : runs) ranges += (ranges.empty() ? "" : ",") + run.text();
  Host host = names[begin].host;
  host.name.clear();
  for (std::size_t i = 0; i < names[begin].fields.size(); ++i)
    host.name += i == at ? "[" + ranges + "]" : names[begin].fields[i].text;
  return to_string(host);
}

}  // namespace

std::string fold_numbers(std::vector<std::uint64_t> numbers) {
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += out.empty() ? "" : ",";
    out +=
        last == i ? fmt::format("{}", numbers[i]) : fmt::format("{}-{}", numbers[i], numbers[last]);
    i = last + 1;
  }
  return out;
}

std::vector<std::string> fold_hosts(std::vector<Host> hosts) {
  std::vector<Name> names;
  names.reserve(hosts.size());
  for (Host& host : hosts) {
    auto fields = fields_of(host.name);
    names.push_back({std::move(host), std::move(fields)});
  }
  std::ranges::sort(names, {}, order);
  names.erase(std::ranges::unique(names, {}, &Name::host).begin(), names.end());
  std::vector<std::string> words;
  for (std::size_t i = 0; i < names.size();) {
    std::size_t end = i + 1;
    const auto at = end < names.size() ? only_difference(names[i], names[end]) : std::nullopt;
    while (at && end < names.size() && only_difference(names[end - 1], names[end]) == at) ++end;
    words.push_back(at ? folded(names, i, end, *at) : to_string(names[i].host));
    i = end;
  }
  return words;
}

std::string in_few_words(std::vector<Host> hosts) {
  return fmt::format("{}", fmt::join(fold_hosts(std::move(hosts)), ","));
}

}  // namespace dt
