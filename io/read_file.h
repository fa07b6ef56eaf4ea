/// Whole files. A failed read is an error with the file's name; a stream's iterators would throw
/// one without.
#pragma once

#include <optional>
#include <string>

#include "core/base/result.h"

namespace dt::io {

[[nodiscard]] Result<std::string> read_file(const std::string& path);
/// Nothing: there is no such file.
[[nodiscard]] Result<std::optional<std::string>> read_file_if_there(const std::string& path);

}  // namespace dt::io
