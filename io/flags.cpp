#include "io/flags.h"

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/value_semantic.hpp>
#include <cctype>
#include <cstdio>
#include <sstream>

#include "core/protocol/exit_code.h"
#include "io/spelling.h"

namespace dt::io {
namespace {

namespace po = boost::program_options;

constexpr unsigned kHelpWidth = 80;
/// Behind longer names the description begins on the next line.
constexpr unsigned kLeastDescription = 44;
constexpr const char* kManual = "manual";

bool may_lack_value(const Flag& flag) {
  return std::holds_alternative<bool*>(flag.to) && !is_switch(flag);
}
bool is_repeatable(const Flag& flag) { return std::holds_alternative<Words*>(flag.to); }

/// The default as people write it.
std::string default_of(const Flag& flag) {
  if (const auto* duration = std::get_if<Duration*>(&flag.to)) {
    const auto hours = std::chrono::duration_cast<std::chrono::hours>(**duration);
    if (hours == **duration && hours.count() > 0) return fmt::format("{} h", hours.count());
    return show(flag) + " s";
  }
  return show(flag);
}

/// `text` with the default in it.
std::string with_default(const Flag& flag, std::string text) {
  if (const auto at = text.find("{}"); at != text.npos) text.replace(at, 2, default_of(flag));
  return text;
}

/// The group as --help shows it.
po::options_description describe(const FlagGroup& group) {
  po::options_description all(group.title, kHelpWidth, kLeastDescription);
  for (const Flag& flag : group.flags) {
    const std::string names =
        flag.letter ? fmt::format("{},{}", flag.name, flag.letter) : std::string(flag.name);
    const std::string text = with_default(flag, flag.help);
    if (is_switch(flag))
      all.add_options()(names.c_str(), text.c_str());
    else
      all.add_options()(names.c_str(), po::value<std::string>()->value_name(flag.value),
                        text.c_str());
  }
  return all;
}

/// A command line cut in two: options with their values, and free words.
class Scanner {
 public:
  Scanner(const Program& program, const Flags& flags, const Words& words)
      : program_(program), flags_(flags), words_(words) {}

  Result<Given> scan() {
    while (at_ < words_.size())
      if (auto done = next(); !done) return tl::unexpected(done.error());
    return std::move(given_);
  }

 private:
  Result<void> next() {
    const std::string& word = words_[at_];
    const bool is_free = word.size() < 2 || word[0] != '-';
    if (is_free && program_.free == Free::kCommand) return rest();
    ++at_;
    if (word == "--" && program_.free != Free::kNone) return rest();
    if (!is_free) return word[1] == '-' ? long_option(word) : short_options(word);
    if (program_.free != Free::kAnywhere)
      return fail(ErrorKind::kInvalid, "unknown word '{}'", word);
    given_.words.push_back(word);
    return {};
  }

  Result<void> rest() {
    const auto from = words_.begin() + static_cast<std::ptrdiff_t>(at_);
    given_.words.insert(given_.words.end(), from, words_.end());
    at_ = words_.size();
    return {};
  }

  [[nodiscard]] const Flag* find(std::string_view name, char letter = 0) const {
    static const Flag kManualFlag{.name = kManual};
    for (const FlagGroup& group : flags_)
      for (const Flag& flag : group.flags)
        if (letter ? flag.letter == letter : flag.name == name) return &flag;
    return name == kManual ? &kManualFlag : nullptr;
  }

  /// "; did you mean --hostfile? See dtlaunch --help", without the question when no flag is near.
  [[nodiscard]] std::string advice(std::string_view name) const {
    Words names;
    for (const FlagGroup& group : flags_)
      for (const Flag& flag : group.flags)
        if (*flag.help != '\0') names.emplace_back(flag.name);
    const auto nearest = nearest_name(name, names);
    return nearest ? fmt::format("; did you mean --{}? See {} --help", *nearest, program_.name)
                   : fmt::format("; see {} --help", program_.name);
  }

  Result<void> long_option(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
    const Flag* flag = find(name);
    if (!flag) return fail(ErrorKind::kInvalid, "unknown option --{}{}", name, advice(name));
    if (equals == word.npos) return take_value(*flag, "--" + name);
    if (is_switch(*flag))
      return fail(ErrorKind::kInvalid, "--{} takes no value: leave out \"{}\"", name,
                  word.substr(equals));
    return add(*flag, word.substr(equals + 1));
  }

  /// -n2, -n 2, -qA, -qn 2.
  Result<void> short_options(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const Flag* flag = find("", word[i]);
      if (!flag)
        return fail(ErrorKind::kInvalid, "unknown option {}{}",
                    i == 1 ? word : fmt::format("-{} in {}", word[i], word),
                    advice(word.substr(1)));
      if (!is_switch(*flag) && i + 1 < word.size()) return add(*flag, word.substr(i + 1));
      if (!is_switch(*flag)) return take_value(*flag, std::string("-") + word[i]);
      if (auto done = add(*flag, ""); !done) return done;
    }
    return {};
  }

  /// The flag's value is the next word, if it takes one.
  Result<void> take_value(const Flag& flag, const std::string& shown) {
    if (may_lack_value(flag)) {
      // True or False is the value only when another word follows; the last word is the command.
      const bool is_value = at_ + 1 < words_.size() && truth(words_[at_]).has_value();
      return add(flag, is_value ? words_[at_++] : "True");
    }
    if (is_switch(flag)) return add(flag, "");
    if (at_ == words_.size()) return fail(ErrorKind::kInvalid, "{} needs a value", shown);
    return add(flag, words_[at_++]);
  }

  Result<void> add(const Flag& flag, std::string value) {
    const auto [found, is_first] = given_.values.try_emplace(flag.name);
    if (is_first || is_repeatable(flag))
      found->second.push_back(std::move(value));
    else if (!is_switch(flag))
      return fail(ErrorKind::kInvalid, "--{} is given twice", flag.name);
    return {};
  }

  const Program& program_;
  const Flags& flags_;
  const Words& words_;
  std::size_t at_ = 0;
  Given given_;
};

/// The flag's words, read into its field.
Result<void> take(const Flag& flag, const Words& words) {
  for (const std::string& word : words) {
    const auto done = read(flag, word);
    if (done) continue;
    if (word.empty()) return fail(done.error().kind, "--{} is empty", flag.name);
    return fail(done.error().kind, "--{} {}: {}", flag.name, word, done.error().message);
  }
  return {};
}

bool is_shown(const Flag& flag) { return *flag.help != '\0'; }

/// A group for each title, of the flags that --help shows.
Flags visible(const Flags& flags) {
  Flags all;
  for (FlagGroup group : flags) {
    std::erase_if(group.flags, [](const Flag& flag) { return !is_shown(flag); });
    if (group.flags.empty()) continue;
    const auto same = [&](const FlagGroup& one) {
      return std::string_view(one.title) == group.title;
    };
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end())
      all.push_back(group);
    else
      found->flags.insert(found->flags.end(), group.flags.begin(), group.flags.end());
  }
  return all;
}

// ---------------------------------------------------------------- roff

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  return out;
}
std::string in_font(char font, std::string_view text) {
  return fmt::format("\\f{}{}\\fR", font, escaped(text));
}

/// How many characters from `at` on are an option: -q, --hostfile.
std::size_t option_at(std::string_view text, std::size_t at) {
  if (text[at] != '-' || (at > 0 && (is_letter(text[at - 1]) || text[at - 1] == '-'))) return 0;
  std::size_t end = at;
  while (end < text.size() && (text[end] == '-' || is_letter(text[end]))) ++end;
  const std::size_t dashes = text.find_first_not_of('-', at) - at;
  const bool is_good = dashes == 2 ? end - at > 3 : dashes == 1 && end - at == 2;
  return is_good && !std::isdigit(static_cast<unsigned char>(text[end - 1])) ? end - at : 0;
}

/// A line of a text as Flag::manual has it.
std::string roff(std::string_view text) {
  if (text.starts_with('.')) return std::string(text);
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    std::size_t end = c == '`' || c == '*' ? text.find(c, at + 1) : text.npos;
    if (end != text.npos) {
      out += in_font(c == '`' ? 'B' : 'I', text.substr(at + 1, end - at - 1));
      at = end + 1;
    } else if (const std::size_t length = option_at(text, at); length > 0) {
      out += in_font('B', text.substr(at, length));
      at += length;
    } else {
      out += c == '\\' ? "\\e" : std::string(1, c);
      ++at;
    }
  }
  return out;
}

/// A value's name: its words are italic.
std::string roff_value(std::string_view value) {
  constexpr std::string_view kBetweenWords = "|,=[]";
  std::string out;
  while (!value.empty()) {
    const std::size_t end = std::min(value.find_first_of(kBetweenWords), value.size());
    out += end > 0 ? in_font('I', value.substr(0, end)) : std::string(1, value.front());
    value.remove_prefix(std::max<std::size_t>(end, 1));
  }
  return out;
}

/// A line of --help as a sentence.
std::string sentence(std::string text) {
  text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

void add_manual(std::string& out, const Flag& flag) {
  out += ".TP\n";
  if (flag.letter) out += in_font('B', fmt::format("-{}", flag.letter)) + ", ";
  out += in_font('B', fmt::format("--{}", flag.name));
  if (!is_switch(flag)) out += " " + roff_value(flag.value);
  out += "\n";
  std::istringstream lines(with_default(flag, *flag.manual ? flag.manual : sentence(flag.help)));
  for (std::string line; std::getline(lines, line);) out += roff(line) + "\n";
}

std::string help(const Program& program, const Flags& flags) {
  std::ostringstream out;
  out << program.usage;
  for (const FlagGroup& group : visible(flags)) out << "\n" << describe(group);
  out << program.more;
  return out.str();
}

/// The flags as roff.
std::string manual(const Flags& flags) {
  std::string out;
  for (const FlagGroup& group : visible(flags)) {
    const std::string_view title = group.title;
    if (flags.size() > 1) out += fmt::format(".SS {}\n", title.substr(0, title.find(" (")));
    for (const Flag& flag : group.flags) add_manual(out, flag);
  }
  return out;
}

}  // namespace

Result<Given> parse(const Program& program, const Flags& flags, const Words& words) {
  auto given = Scanner(program, flags, words).scan();
  if (!given || answer(program, flags, *given)) return given;
  for (const FlagGroup& group : flags)
    for (const Flag& flag : group.flags)
      if (const auto found = given->values.find(flag.name); found != given->values.end())
        if (auto taken = take(flag, found->second); !taken) return tl::unexpected(taken.error());
  return given;
}

std::optional<std::string> answer(const Program& program, const Flags& flags, const Given& given) {
  if (given.has("help")) return help(program, flags);
  if (given.has("version")) return program.version;
  if (given.has(kManual)) return manual(flags);
  return std::nullopt;
}

int refuse(const Program& program, const Error& why) {
  const bool has_advice = why.message.find("--help") != std::string::npos;
  fmt::print(stderr, "{}: {}{}\n", program.name, why.message,
             has_advice ? "" : fmt::format("; see {} --help", program.name));
  return kExitUsage;
}

}  // namespace dt::io
