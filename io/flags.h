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

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/result.h"
#include "core/base/time.h"

namespace dt::io {

using Words = std::vector<std::string>;

/// A number of bytes, with k, M, G or T (of 1024) behind it.
struct Bytes {
  std::uint64_t* into;
};
/// Any other value. The error names what was expected. Without `show` there is no default.
struct Reader {
  std::function<Result<void>(const std::string& text)> read;
  std::function<std::string()> show = [] { return ""; };
};

/// Where a value goes; the type decides how it is read. Nothing: a switch that only Given knows of.
/// A bool is a switch; with a value it is True or False, 1 or 0, and a switch where that is left
/// out. A Duration is read in seconds, or with ms, s, m or h. Words may be given again and again.
using Target =
    std::variant<std::monostate, bool*, std::uint16_t*, std::uint32_t*, std::uint64_t*,
                 std::optional<std::uint32_t>*, Duration*, Bytes, std::string*, Words*, Reader>;

/// The words that `into` may be, with what they mean.
template <class T, class Word = const char*>
[[nodiscard]] Reader one_of(T& into, const std::vector<std::pair<Word, T>>& known) {
  const auto read = [&into, known](const std::string& text) -> Result<void> {
    for (const auto& [word, value] : known) {
      if (word != text) continue;
      into = value;
      return {};
    }
    return fail(ErrorKind::kInvalid, "one of {} was expected",
                fmt::join(known | std::views::keys, ", "));
  };
  const auto show = [&into, known] {
    for (const auto& [word, value] : known)
      if (value == into) return std::string(word);
    return std::string();
  };
  return {read, show};
}
[[nodiscard]] Reader one_of(std::string& into, const Words& words);

struct Flag {
  const char* name = "";   ///< Without the dashes.
  char letter = 0;         ///< 0: none.
  const char* value = "";  ///< What --help shows for the value: "FILE", "auto|tcp|shm".
  Target to = {};
  bool may_be_zero = false;  ///< A time of 0 is allowed.
  std::uint64_t least = 0;   ///< Smallest number allowed.
  std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
  Result<void> (*check)(const std::string& text) = nullptr;  ///< What else a text has to be.
  const char* help = "";  ///< One line; "{}" in it is the default. Empty: --help is silent.
  /// The manual's text; empty: `help` as a sentence. In it `x` is bold and *x* italic, options are
  /// bold by themselves, and a line that begins with a dot is roff already.
  const char* manual = "";
  const char* json = nullptr;      ///< Its path in spec.json: "ssh/port".
  bool for_servers = false;        ///< Only servers get `variable`.
  const char* variable = nullptr;  ///< The variable by which processes of a job get it: "DT_...".
};

/// Whether it takes no value.
[[nodiscard]] inline bool is_switch(const Flag& flag) { return *flag.value == '\0'; }

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
  std::string name = {};
  std::string version;    ///< What --version prints.
  std::string usage;      ///< What --help prints before the options,
  std::string more = {};  ///< and behind them.
  Free free = Free::kNone;
  std::string unknown = "unknown option";  ///< What is said before one.
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

/// One value: of a switch "", or True or False. The error names what was expected.
[[nodiscard]] Result<void> read(const Flag& flag, const std::string& text);
/// The value that the field has now, as a variable has it: "1", "0.5", "auto". read() takes it.
[[nodiscard]] std::string show(const Flag& flag);
/// True or False, and 1 or 0, in letters of any size; nothing for other words.
[[nodiscard]] std::optional<bool> truth(std::string_view text);

}  // namespace dt::io
