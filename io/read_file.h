/// Whole files. A failed read is an error with the file's name; a stream's iterators would throw
/// one without.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace dt::io {

/// A FIFO or a device is an error: nothing is waited for.
[[nodiscard]] Result<std::string> read_file(const std::string& path);
/// Nothing: there is no such file.
[[nodiscard]] Result<std::optional<std::string>> read_file_if_there(const std::string& path);
/// Without its newline; empty: it cannot be read.
[[nodiscard]] std::string first_line(const std::string& path);
/// The last bytes of a file of text, at most `most`; empty: it cannot be read.
[[nodiscard]] std::string end_of_file(const std::string& path, std::size_t most = 16 << 10);

}  // namespace dt::io
