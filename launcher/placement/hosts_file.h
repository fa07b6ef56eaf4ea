/// Texts of hosts that the user gives: files, and words of a command line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"

namespace dt::launcher {

/// The hosts of a file, at least one, which is opened once: it may be a pipe. None without a file.
/// At most 16 MiB. Errors name the file.
[[nodiscard]] Result<std::vector<HostLine>> read_hosts_file(const std::string& path);

/// "a,b[1,3]" as lines of a hosts file: a comma outside of brackets ends a line.
[[nodiscard]] std::string lines_of_words(std::string_view words);

}  // namespace dt::launcher
