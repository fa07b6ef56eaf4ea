/// The programs a host needs (agent, server), named by a hash of their contents, and the commands
/// that run them there: no installation, any login shell, one round trip when they are there.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace dt::launcher {

struct BundleFile {
  std::string name;  ///< Base name, as it is called on the host.
  std::string bytes;
};

/// Immutable once loaded; shared by all hosts.
struct Bundle {
  std::string hash;  ///< 32 hex digits over names and contents.
  std::vector<BundleFile> files;
  std::string machine;  ///< For which the first file is built, as `uname -m` says it.
  std::string loader;   ///< Its program interpreter; both empty if it is no ELF program.
};

/// Reads the files. At least one, with distinct base names.
[[nodiscard]] Result<std::shared_ptr<const Bundle>> load_bundle(
    const std::vector<std::string>& paths);

/// How a host answers bundle_exec_script(), each on a line of its own.
inline constexpr std::string_view kAnswer = "dtlaunch:";  ///< How all of them begin.
inline constexpr std::string_view kReadyLine = "dtlaunch:ready";
inline constexpr std::string_view kMissingLine = "dtlaunch:missing";
inline constexpr std::string_view kForeignLine = "dtlaunch:foreign ";  ///< `uname -m` follows.

/// Shell text that prints kReadyLine and becomes `argv` (argv[0] taken from the bundle); or prints
/// kMissingLine, or kForeignLine where the bundle's programs cannot run, and ends.
[[nodiscard]] std::string bundle_exec_script(const Bundle& bundle,
                                             const std::vector<std::string>& argv);
/// Shell text that stores its stdin as one file of the bundle in a temporary folder; `token` names
/// that folder.
[[nodiscard]] std::string bundle_store_script(const Bundle& bundle, const BundleFile& file,
                                              const std::string& token);
/// Shell text that renames the temporary folder into place. Two at once are harmless: one wins.
[[nodiscard]] std::string bundle_commit_script(const Bundle& bundle, const std::string& token);

/// A command line that runs `script` by /bin/sh whatever the login shell is (sh, csh, fish).
[[nodiscard]] std::string login_command(std::string_view script);

}  // namespace dt::launcher
