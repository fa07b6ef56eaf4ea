/// Mounted file systems.
#pragma once

#include <string>

namespace dt::launcher {

/// What is mounted at `path`: "nfs1:/export, nfs4". Empty: it cannot be known. Blocks.
[[nodiscard]] std::string mount_of(const std::string& path);

}  // namespace dt::launcher
