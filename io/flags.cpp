#include "io/flags.h"

#include <algorithm>
#include <boost/program_options/errors.hpp>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
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
bool is_shown(const Flag& flag) { return *flag.help != '\0'; }
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

/// By its name, or by its letter.
const Flag* find(const Flags& flags, std::string_view name, char letter = 0) {
  static const Flag kManualFlag{.name = kManual};
  for (const FlagGroup& group : flags)
    for (const Flag& flag : group.flags)
      if (letter ? flag.letter == letter : flag.name == name) return &flag;
  return name == kManual ? &kManualFlag : nullptr;
}

/// What Program_options would read otherwise: the free words that end the options, --elastic, which
/// may lack a value, and words such as --x= and ---. Before it takes a word as a value it asks here
/// with that word alone: a free one must then be left there.
std::vector<po::option> own_style(Free free, const Flags& flags, Words& words) {
  po::option option;
  const std::string word = words[0];
  const bool is_free = word.size() < 2 || word[0] != '-';
  const bool ends =
      is_free ? free != Free::kAnywhere && words.size() > 1 : word == "--" && free != Free::kNone;
  if (ends) {
    option.value.swap(words);
    return {option};
  }
  if (!word.starts_with("--")) return {};
  const std::size_t equals = std::min(word.find('='), word.size());
  const Flag* flag = find(flags, std::string_view(word).substr(2, equals - 2));
  const bool lacks_value = flag && may_lack_value(*flag) && equals == word.size();
  if (flag && !lacks_value && equals + 1 != word.size()) return {};
  // True or False is the value only when another word follows; the last word is the command.
  const bool is_next = lacks_value && words.size() > 2 && truth(words[1]);
  option.string_key = flag ? flag->name : word;
  option.value = {is_next ? words[1] : lacks_value ? "True" : ""};
  option.original_tokens = {word};
  words.erase(words.begin(), words.begin() + (is_next ? 2 : 1));
  return {option};
}

/// "; did you mean --hostfile? See dtlaunch --help", without the question when no flag is near.
std::string advice(const Program& program, const Flags& flags, std::string_view name) {
  Words names;
  for (const FlagGroup& group : flags)
    for (const Flag& flag : group.flags)
      if (is_shown(flag)) names.emplace_back(flag.name);
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean --{}? See {} --help", *nearest, program.name)
                 : fmt::format("; see {} --help", program.name);
}

tl::unexpected<Error> unknown(const Program& program, const Flags& flags, std::string word) {
  if (word.starts_with("--")) word.resize(std::min(word.find('='), word.size()));
  std::size_t at = 1;
  while (word[1] != '-' && find(flags, "", word[at])) ++at;
  return fail(ErrorKind::kInvalid, "{} {}{}", program.unknown,
              at == 1 ? word : fmt::format("-{} in {}", word[at], word),
              advice(program, flags, word.substr(word[1] == '-' ? 2 : 1)));
}

tl::unexpected<Error> wrong_value(const Flags& flags, po::invalid_syntax& error) {
  std::string name = error.get_option_name();
  error.m_error_template = "%original_token%";
  const std::string word = error.what();
  if (error.kind() == po::invalid_syntax::extra_parameter)
    return fail(ErrorKind::kInvalid, "{} takes no value: leave out \"{}\"", name,
                word.substr(name.size()));
  const char letter = find(flags, name.substr(2))->letter;
  if (word[1] != '-' && word.back() == letter) name = {'-', letter};
  return fail(ErrorKind::kInvalid, "{} needs a value", name);
}

Result<void> add(Given& given, const Flag& flag, const Words& value) {
  const auto [found, is_first] = given.values.try_emplace(flag.name);
  if (is_first || is_repeatable(flag))
    found->second.push_back(value.empty() ? "" : value[0]);
  else if (!is_switch(flag))
    return fail(ErrorKind::kInvalid, "--{} is given twice", flag.name);
  return {};
}

/// A command line cut in two: options with their values, and free words.
Result<Given> scan(const Program& program, const Flags& flags, const Words& words) try {
  using Style = po::command_line_style::style_t;
  po::options_description known;
  known.add_options()(kManual, "");
  for (const FlagGroup& group : flags) known.add(describe(group));
  po::command_line_parser parser(words);
  parser.options(known).style(Style::unix_style & ~Style::allow_guessing);
  parser.extra_style_parser([&](Words& rest) { return own_style(program.free, flags, rest); });
  Given given;
  for (const po::option& option : parser.run().options) {
    if (!option.string_key.empty()) {
      if (auto done = add(given, *find(flags, option.string_key), option.value); !done)
        return tl::unexpected(done.error());
      continue;
    }
    const bool is_end = option.value[0] == "--";
    if (program.free == Free::kNone || (program.free == Free::kAfterDashes && !is_end))
      return fail(ErrorKind::kInvalid, "unknown word '{}'", option.value[0]);
    given.words.insert(given.words.end(), option.value.begin() + is_end, option.value.end());
  }
  return given;
} catch (const po::unknown_option& error) {
  return unknown(program, flags, error.get_option_name());
} catch (po::invalid_syntax& error) {
  return wrong_value(flags, error);
}

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

/// A group for each title, of the flags that --help shows.
Flags visible(const Flags& flags) {
  Flags all;
  for (FlagGroup group : flags) {
    std::erase_if(group.flags, [](const Flag& flag) { return !is_shown(flag); });
    if (group.flags.empty()) continue;
    const auto same = [&](const FlagGroup& one) {
      return std::string_view(one.title) == group.title;
    };
    const auto found = std::ranges::find_if(all, same);
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
  auto given = scan(program, flags, words);
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
