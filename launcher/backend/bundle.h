/// The programs a host needs (agent, server), named by a hash of their contents, and the commands
/// that run them there: no installation, any login shell, one round trip when they are there.
///
/// On a host a bundle is the folder ROOT/HASH, where ROOT is the first of $XDG_CACHE_HOME/dtlaunch,
/// ~/.cache/dtlaunch, /var/tmp/dtlaunch-UID and /tmp/dtlaunch-UID (0700, the user's) where a file
/// can be made and executed. Each program lies in it under its name
/// and under .HASH of its own contents, by which a later bundle finds what has not changed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "launcher/backend/elf_program.h"

namespace dt::launcher {

struct BundleFile {
  std::string name;   ///< Base name, as it is called on the host.
  std::string bytes;  ///< Without symbols and debug information.
  std::string hash;   ///< 32 hex digits over the bytes.
};

/// Immutable once loaded; shared by all hosts.
struct Bundle {
  std::string hash;  ///< 32 hex digits over names and contents.
  std::vector<BundleFile> files;
  ProgramNeeds needs;  ///< Those of the first file.
};

/// Reads the files. At least one, with distinct base names.
[[nodiscard]] Result<std::shared_ptr<const Bundle>> load_bundle(
    const std::vector<std::string>& paths);

/// The files as they are sent: a gzip member each, in the bundle's order. Takes most of a second.
[[nodiscard]] Result<std::vector<std::string>> pack_bundle(const Bundle& bundle);

/// How a host answers bundle_exec_script(), each on a line of its own.
inline constexpr std::string_view kAnswer = "dtlaunch:";  ///< How all of them begin.
inline constexpr std::string_view kReadyLine = "dtlaunch:ready";
/// Followed by the hashes of the files that no bundle there has, each after a space.
inline constexpr std::string_view kMissingLine = "dtlaunch:missing";
inline constexpr std::string_view kForeignLine = "dtlaunch:foreign ";  ///< `uname -m` follows.

/// What bundle_copy_script() prints before a ROOT that is not the usual one.
inline constexpr std::string_view kRootLine = "dtlaunch:root ";
inline constexpr int kNoRoot = 3;  ///< Its exit code where no ROOT can be used.

/// Shell text that prints kReadyLine and becomes `argv` (argv[0] taken from the bundle); or prints
/// kMissingLine, or kForeignLine where the bundle's programs cannot run, and ends.
[[nodiscard]] std::string bundle_exec_script(const Bundle& bundle,
                                             const std::vector<std::string>& argv);
/// One of the bundle's files as it comes to a host's stdin.
struct SentFile {
  std::size_t index = 0;  ///< In Bundle::files.
  std::size_t bytes = 0;  ///< Packed.
};
/// Shell text that brings the bundle to a host in one login, since start files of a shell can take
/// a second. It unpacks these files, one behind the other in its stdin, into a temporary folder
/// named by `token`, adds the files that other bundles there have, and renames it into place.
/// Two at once are harmless: one wins. When its input breaks off, it removes the folder. At the end
/// bundles that were unused for two days are removed, as are temporary folders older than an hour.
[[nodiscard]] std::string bundle_copy_script(const Bundle& bundle,
                                             const std::vector<SentFile>& sent,
                                             const std::string& token);

/// A command line that runs `script` by /bin/sh whatever the login shell is (sh, csh, fish).
[[nodiscard]] std::string login_command(std::string_view script);

}  // namespace dt::launcher
