#include "launcher/cli/option_scan.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "launcher/cli/spelling.h"

namespace dt::launcher {
namespace {

namespace po = boost::program_options;

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// "; did you mean --hostfile? See dtlaunch --help", without the question when no option is near.
std::string advice(const po::options_description& table, std::string_view name) {
  Words names;
  for (const auto& option : table.options()) names.push_back(option->long_name());
  const auto nearest = nearest_name(name, names);
  return nearest ? fmt::format("; did you mean --{}? See dtlaunch --help", *nearest)
                 : "; see dtlaunch --help";
}

class Scanner {
 public:
  Scanner(const po::options_description& table, const Words& words)
      : table_(table), words_(words), options_(&table) {}

  Result<Scan> scan() {
    while (at_ < words_.size()) {
      const std::string& word = words_[at_];
      if (word == "--") {
        ++at_;
        break;
      }
      if (word.size() < 2 || word[0] != '-') break;
      ++at_;
      auto done = word[1] == '-' ? long_option(word) : short_options(word);
      if (!done) return tl::unexpected(done.error());
    }
    Words command(words_.begin() + static_cast<std::ptrdiff_t>(at_), words_.end());
    return Scan{std::move(options_), std::move(command)};
  }

 private:
  Result<void> long_option(const std::string& word) {
    const std::size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == word.npos ? word.npos : equals - 2);
    const auto* option = table_.find_nothrow(name, false);
    if (!option)
      return fail(ErrorKind::kInvalid, "unknown option --{}{}", name, advice(table_, name));
    if (equals == word.npos) return take_value(*option, "--" + name);
    if (!takes_value(*option))
      return fail(ErrorKind::kInvalid, "--{} takes no value: leave out \"{}\"", name,
                  word.substr(equals));
    return add(*option, word.substr(equals + 1));
  }

  /// -n2, -n 2, -qA, -qn 2.
  Result<void> short_options(const std::string& word) {
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto* option = table_.find_nothrow(std::string("-") + word[i], false);
      if (!option)
        return fail(ErrorKind::kInvalid, "unknown option {}{}",
                    i == 1 ? word : fmt::format("-{} in {}", word[i], word),
                    advice(table_, word.substr(1)));
      if (!takes_value(*option)) {
        if (auto done = add(*option, std::nullopt); !done) return done;
        continue;
      }
      if (i + 1 < word.size()) return add(*option, word.substr(i + 1));
      return take_value(*option, std::string("-") + word[i]);
    }
    return {};
  }

  /// The option's value is the next word, if it takes one.
  Result<void> take_value(const po::option_description& option, const std::string& shown) {
    if (option.long_name() == kElastic) {
      // True or False is the value only when another word follows; the last word is the command.
      const bool is_value = at_ + 1 < words_.size() && truth(words_[at_]).has_value();
      return add(option, is_value ? words_[at_++] : "True");
    }
    if (!takes_value(option)) return add(option, std::nullopt);
    if (at_ == words_.size()) return fail(ErrorKind::kInvalid, "{} needs a value", shown);
    return add(option, words_[at_++]);
  }

  Result<void> add(const po::option_description& option, std::optional<std::string> value) {
    const std::string& name = option.long_name();
    const auto same = [&](const auto& o) { return o.string_key == name; };
    const bool again = std::any_of(options_.options.begin(), options_.options.end(), same);
    if (again && !value) return {};
    if (again && !is_repeatable(option))
      return fail(ErrorKind::kInvalid, "--{} is given twice", name);
    po::option parsed;
    parsed.string_key = name;
    if (value) parsed.value = {*value};
    options_.options.push_back(std::move(parsed));
    return {};
  }

  const po::options_description& table_;
  const Words& words_;
  std::size_t at_ = 0;
  po::parsed_options options_;
};

}  // namespace

Result<Scan> scan_options(const po::options_description& table, const Words& words) {
  return Scanner(table, words).scan();
}

std::optional<bool> truth(const std::string& text) {
  const std::string t = lower(text);
  if (t == "true" || t == "1") return true;
  if (t == "false" || t == "0") return false;
  return std::nullopt;
}
}  // namespace dt::launcher
