#include "launcher/backend/ssh/config_text.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "io/job/spec.h"
#include "io/subprocess.h"

namespace dt::launcher {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

/// Cuts off what `text` begins with and `any` names.
void skip(std::string_view& text, std::string_view any) {
  text.remove_prefix(std::min(text.find_first_not_of(any), text.size()));
}

}  // namespace

std::optional<std::string> take_word(std::string_view& text) {
  if (text.empty()) return std::nullopt;
  const std::size_t end = std::min(text.find_first_of(" \t\r\n\"="), text.size());
  std::string word(text.substr(0, end));
  text.remove_prefix(end);
  if (text.empty()) return word;
  const char delimiter = text.front();
  text.remove_prefix(1);
  if (delimiter == '"') {
    const std::size_t close = text.find('"');
    if (close == std::string_view::npos) return std::nullopt;
    word += text.substr(0, close);
    text.remove_prefix(close + 1);
    skip(text, kBlanks);
    return word;
  }
  skip(text, kBlanks);
  if (delimiter != '=' && text.starts_with('=')) {
    text.remove_prefix(1);
    skip(text, kBlanks);
  }
  return word;
}

Result<std::vector<std::string>> split_arguments(std::string_view text) {
  std::vector<std::string> words;
  const auto at = [&](std::size_t i) { return i < text.size() ? text[i] : '\0'; };
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_blank(text[i])) continue;
    if (text[i] == '#') break;
    std::string& word = words.emplace_back();
    char quote = '\0';
    for (; i < text.size() && (quote != '\0' || !is_blank(text[i])); ++i) {
      const char next = at(i + 1);
      const bool is_escape = text[i] == '\\' && (next == '\'' || next == '"' || next == '\\' ||
                                                 (quote == '\0' && next == ' '));
      if (is_escape)
        word += text[++i];
      else if (quote == '\0' && (text[i] == '"' || text[i] == '\''))
        quote = text[i];
      else if (quote != '\0' && text[i] == quote)
        quote = '\0';
      else
        word += text[i];
    }
    if (quote != '\0') return fail(ErrorKind::kInvalid, "a quote ({}) is not closed", quote);
  }
  return words;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  std::istringstream list{std::string(text)};
  for (std::string one; std::getline(list, one, ',');) parts.push_back(one);
  return parts;
}

Result<std::string> expand_tokens(std::string_view text, const Tokens& values,
                                  std::string_view letters) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return fail(ErrorKind::kInvalid, "a % at the end: %% stands for it");
    const auto value = values.find(text[i]);
    const bool is_known = letters.find(text[i]) != std::string_view::npos;
    if (text[i] != '%' && !is_known)
      return fail(ErrorKind::kInvalid, "%{} is not known here: %% and %{} are", text[i],
                  fmt::join(letters, " %"));
    if (text[i] != '%' && value == values.end())
      return fail(ErrorKind::kInvalid, "%{} differs between versions of OpenSSH here: write a name",
                  text[i]);
    out += text[i] == '%' ? "%" : value->second;
  }
  return out;
}

Result<std::string> expand_variables(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = std::min(text.find("${", at), text.size());
    out += text.substr(at, begin - at);
    if (begin == text.size()) break;
    const std::size_t end = text.find('}', begin);
    if (end == std::string_view::npos) return fail(ErrorKind::kInvalid, "a ${{ without its }}");
    const std::string name(text.substr(begin + 2, end - begin - 2));
    const auto value = io::variable(name);
    if (!value) return fail(ErrorKind::kInvalid, "the variable {} is not set", name);
    out += *value;
    at = end + 1;
  }
  return out;
}

std::string expand_home(std::string_view path) {
  if (path == "~" || path.substr(0, 2) == "~/") return io::home_dir() + std::string(path.substr(1));
  return std::string(path);
}

Result<std::string> expand_any_home(std::string_view path) {
  const std::size_t end = std::min(path.find('/'), path.size());
  if (!path.starts_with('~') || end == 1) return expand_home(path);
  const std::string user(path.substr(1, end - 1));
  const passwd* entry = ::getpwnam(user.c_str());
  if (entry == nullptr) return fail(ErrorKind::kInvalid, "~{}: there is no such user", user);
  return entry->pw_dir + std::string(path.substr(end));
}

bool glob_match(std::string_view pattern, std::string_view text) {
  // Backtracks to the last star only: linear in practice, never exponential.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool patterns_match(const std::vector<std::string>& patterns, std::string_view text) {
  bool matched = false;
  for (const std::string& pattern : patterns) {
    const bool negated = pattern.starts_with('!');
    if (!glob_match(std::string_view(pattern).substr(negated ? 1 : 0), text)) continue;
    if (negated) return false;
    matched = true;
  }
  return matched;
}

const std::string& own_user_name() {
  static const std::string name = [] {
    const passwd* entry = ::getpwuid(::getuid());
    return entry != nullptr ? entry->pw_name : std::to_string(::getuid());
  }();
  return name;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

}  // namespace dt::launcher
