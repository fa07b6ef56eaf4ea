/// The options of a program: a row each. From the rows come the reading of a command line, --help
/// with its defaults, the manual's list of options (--manual), and variables of the environment.
/// Rows are made for one object: they know the fields that they fill, and what those hold before
/// is the default.
///
///     io::Flags flags(Options& o) {
///       return {{"Options",
///                {{.name = "workers", .letter = 'w', .value = "N", .to = &o.workers, .least = 1,
///                  .help = "worker processes ({})"},
///                 {.name = "help", .letter = 'h', .help = "show this"}}}};
///     }
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

namespace dt::io {

using Words = std::vector<std::string>;

/// A switch that turns something off.
struct Off {
  bool* into;
};
/// True or False, 1 or 0; a switch where the value is left out.
struct Truth {
  bool* into;
};
/// A number of bytes, with k, M, G or T (of 1024) behind it.
struct Bytes {
  std::uint64_t* into;
};
/// One of `words`, by its number.
struct Choice {
  Words words;
  std::function<void(std::size_t)> set;
  std::function<std::size_t()> get;
};
/// Any other value. The error names what was expected.
using Reader = std::function<Result<void>(const std::string& text)>;

/// Where a value goes; the type decides how it is read. Nothing: a switch that only Given knows of.
/// A Duration is read in seconds, or with ms, s, m or h. Words may be given again and again.
using Target = std::variant<std::monostate, bool*, Off, Truth, std::uint16_t*, std::uint32_t*,
                            std::uint64_t*, std::optional<std::uint32_t>*, Duration*, Bytes,
                            std::string*, Words*, Choice, Reader>;

[[nodiscard]] Choice one_of(std::string& into, Words words);
template <class T>
[[nodiscard]] Choice one_of(T& into, const std::vector<std::pair<const char*, T>>& known) {
  Choice choice;
  std::vector<T> values;
  for (const auto& [word, value] : known) {
    choice.words.emplace_back(word);
    values.push_back(value);
  }
  choice.get = [&into, values] {
    std::size_t i = 0;
    while (i + 1 < values.size() && values[i] != into) ++i;
    return i;
  };
  choice.set = [&into, values](std::size_t i) { into = values[i]; };
  return choice;
}

struct Flag {
  const char* name = "";   ///< Without the dashes.
  char letter = 0;         ///< 0: none.
  const char* value = "";  ///< What --help shows for the value: "FILE", "auto|tcp|shm".
  Target to = {};
  std::uint64_t least = 0;  ///< Smallest number allowed.
  std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  Result<void> (*check)(const std::string& text) = nullptr;  ///< What else a text has to be.
  const char* help = "";       ///< One line; "{}" in it is the default. Empty: --help is silent.
  const char* manual = "";     ///< The manual's text, see manual(); empty: `help` as a sentence.
  const char* json = nullptr;  ///< Its path in spec.json: "ssh/port".
  bool for_servers = false;    ///< Only servers get `variable`.
  const char* variable = nullptr;  ///< The variable by which processes of a job get it: "DT_...".
};

struct FlagGroup {
  const char* title;
  std::vector<Flag> flags;
};
/// Groups of one title are shown as one.
using Flags = std::vector<FlagGroup>;

/// Which words of a command line may be none of its options.
enum class Free {
  kNone,
  kCommand,      ///< From the first such word, or "--", on everything.
  kAnywhere,     ///< Among the options.
  kAfterDashes,  ///< Behind "--" only.
};

struct Program {
  const char* name = "";
  std::string version;    ///< What --version prints.
  std::string usage;      ///< What --help prints before the options,
  std::string more = {};  ///< and behind them.
  Free free = Free::kNone;
};

struct Given {
  std::map<std::string, Words, std::less<>>
      values;   ///< By the names of the options that were there.
  Words words;  ///< What is free.
  [[nodiscard]] bool has(std::string_view name) const { return values.contains(name); }
};

/// Fills the fields of the flags that `words` has. Where one is --help, --version or --manual, the
/// values are left alone. Errors are kInvalid and name the option; for one that is not known, the
/// nearest.
[[nodiscard]] Result<Given> parse(const Program& program, const Flags& flags, const Words& words);

/// The text of --help, --version or --manual, if one of them was given.
[[nodiscard]] std::optional<std::string> answer(const Program& program, const Flags& flags,
                                                const Given& given);
/// Prints why a command line is refused. The exit code.
int refuse(const Program& program, const Error& why);

[[nodiscard]] std::string help(const Program& program, const Flags& flags);
/// The flags as roff. In their texts `x` is bold and *x* italic, options are bold by themselves,
/// and a line that begins with a dot is roff already.
[[nodiscard]] std::string manual(const Flags& flags);

/// One value; the error names what was expected.
[[nodiscard]] Result<void> read(const Flag& flag, const std::string& text);
/// The value that the field has now, as a variable has it: "1", "0.5", "auto".
[[nodiscard]] std::string show(const Flag& flag);
/// What show() made.
[[nodiscard]] Result<void> read_shown(const Flag& flag, const std::string& text);
/// True or False, and 1 or 0, in letters of any size; nothing for other words.
[[nodiscard]] std::optional<bool> truth(std::string_view text);

}  // namespace dt::io
