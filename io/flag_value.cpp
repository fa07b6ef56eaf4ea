// What each kind of value is in text.
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>

#include "core/base/number.h"
#include "io/flags.h"

namespace dt::io {
namespace {

constexpr std::uint32_t kLongest = 49 * 24 * 3600;  // in milliseconds it fits into 32 bits

struct Read {
  const Flag& flag;
  const std::string& text;

  Result<void> operator()(std::monostate) const { return {}; }
  Result<void> operator()(bool* into) const {
    const auto value = is_switch(flag) && text.empty() ? true : truth(text);
    if (!value) return fail(ErrorKind::kInvalid, "True or False was expected");
    *into = *value;
    return {};
  }
  template <std::unsigned_integral Number>
  Result<void> operator()(Number* into) const {
    const std::uint64_t most = std::min<std::uint64_t>(flag.most, Number(-1));
    const auto value = parse_number<std::uint64_t>(text);
    if (!value || *value < flag.least || *value > most)
      return fail(ErrorKind::kInvalid, "a number {} to {} was expected", flag.least, most);
    *into = static_cast<Number>(*value);
    return {};
  }
  Result<void> operator()(std::optional<std::uint32_t>* into) const {
    std::uint32_t value = 0;
    auto done = (*this)(&value);
    if (done) *into = value;
    return done;
  }
  Result<void> operator()(Duration* into) const {
    std::string_view unit = text;
    const auto number = take_number<double>(unit);
    const double scale = unit.empty() || unit == "s" ? 1
                         : unit == "ms"              ? 1e-3
                         : unit == "m"               ? 60
                         : unit == "h"               ? 3600
                                                     : 0;
    const double value = number.value_or(0) * scale;
    const bool is_zero = number && *number == 0 && scale > 0;
    if (!std::isfinite(value) || (value < 1e-6 && !(is_zero && flag.may_be_zero)))
      return fail(ErrorKind::kInvalid, "a time was expected, such as 30, 500ms, 10m or 2h");
    if (value > static_cast<double>(std::min<std::uint64_t>(kLongest, flag.most)))
      return flag.most > kLongest
                 ? fail(ErrorKind::kInvalid, "at most 1176h (49 days) were expected")
                 : fail(ErrorKind::kInvalid, "at most {} s were expected", flag.most);
    *into = std::chrono::microseconds(std::llround(value * 1e6));
    return {};
  }
  Result<void> operator()(Bytes bytes) const {
    constexpr std::string_view kUnits = "kMGT";
    std::string_view unit = text;
    const auto number = take_number<std::uint64_t>(unit);
    const std::size_t which = unit.size() == 1 ? kUnits.find(unit[0]) : kUnits.npos;
    const std::size_t shift = unit.empty() ? 0 : 10 * (which + 1);
    if (!number || (!unit.empty() && which == kUnits.npos) ||
        (*number << shift) >> shift != *number)
      return fail(ErrorKind::kInvalid, "a size was expected, such as 500M or 2G");
    *bytes.into = *number << shift;
    return {};
  }
  Result<void> operator()(std::string* into) const {
    if (text.empty()) return fail(ErrorKind::kInvalid, "a text was expected");
    *into = text;
    return {};
  }
  Result<void> operator()(Words* into) const {
    into->push_back(text);
    return {};
  }
  Result<void> operator()(const Reader& reader) const { return reader.read(text); }
};

struct Show {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const bool* value) const { return *value ? "1" : "0"; }
  std::string operator()(const std::optional<std::uint32_t>* value) const {
    return *value ? std::to_string(**value) : "";
  }
  std::string operator()(const Duration* value) const { return fmt::format("{}", seconds(*value)); }
  std::string operator()(Bytes bytes) const { return std::to_string(*bytes.into); }
  std::string operator()(const Words* value) const {
    return fmt::format("{}", fmt::join(*value, " "));
  }
  std::string operator()(const Reader& reader) const { return reader.show(); }
  template <class Value>
  std::string operator()(const Value* value) const {
    return fmt::format("{}", *value);
  }
};

}  // namespace

Reader one_of(std::string& into, const Words& words) {
  std::vector<std::pair<std::string, std::string>> known;
  for (const std::string& word : words) known.emplace_back(word, word);
  return one_of(into, known);
}

Result<void> read(const Flag& flag, const std::string& text) {
  if (flag.check)
    if (auto good = flag.check(text); !good) return good;
  return std::visit(Read{flag, text}, flag.to);
}

std::string show(const Flag& flag) { return std::visit(Show{}, flag.to); }

std::optional<bool> truth(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return std::nullopt;
}

}  // namespace dt::io
