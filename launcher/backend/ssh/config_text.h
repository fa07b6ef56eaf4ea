/// How OpenSSH's client reads the text of `ssh_config`: words, quotes, patterns, tokens.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace dt::launcher {

/// Cuts the first word off: blanks or one `=` end it, double quotes hold blanks. Keywords and the
/// criteria of Match are written so. Nothing: there is none, or a quote is open.
[[nodiscard]] std::optional<std::string> take_word(std::string_view& text);
/// The arguments of a keyword: quotes of both kinds, escapes, an unquoted # begins a comment. An
/// error: a quote is open.
[[nodiscard]] Result<std::vector<std::string>> split_arguments(std::string_view text);
[[nodiscard]] std::vector<std::string> split_list(std::string_view text);

/// What stands for the letter after a %.
using Tokens = std::map<char, std::string>;
/// `text` with %% and with those of `values` that are among `letters`. An error: another token.
[[nodiscard]] Result<std::string> expand_tokens(std::string_view text, const Tokens& values,
                                                std::string_view letters);
/// `text` with its ${VARIABLE}s. An error: one that is not set.
[[nodiscard]] Result<std::string> expand_variables(std::string_view text);
/// "~" and "~/..." by $HOME, else by the password file.
[[nodiscard]] std::string expand_home(std::string_view path);
/// The same, and "~user/..." by the password file.
[[nodiscard]] Result<std::string> expand_any_home(std::string_view path);

/// `*`, `?`; case matters.
[[nodiscard]] bool glob_match(std::string_view pattern, std::string_view text);
/// A list of patterns with `!` negation: a negated match refuses, else any match accepts. Case
/// matters.
[[nodiscard]] bool patterns_match(const std::vector<std::string>& patterns, std::string_view text);

[[nodiscard]] const std::string& own_user_name();
[[nodiscard]] std::string lower_case(std::string_view text);

}  // namespace dt::launcher
