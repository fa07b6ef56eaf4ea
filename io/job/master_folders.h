/// Where jobs' files lie on the master: their state, which is the journal, and their sockets. The
/// same environment yields the same folders.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace dt::io {

/// A folder above those of the jobs.
struct MasterFolder {
  std::string path;
  /// A sentence for the user about an unusual choice; empty for the usual one.
  std::string notice;
  std::string variable;  ///< The variable that determines it: "HOME".
};

/// Longest name of a unix socket, without its zero.
inline constexpr std::size_t kLongestSocket = 107;

/// The inputs of the choice.
struct FolderFacts {
  std::optional<std::string> given;  ///< XDG_STATE_HOME or XDG_RUNTIME_DIR, if it is set.
  std::string home;
  unsigned uid = 0;
  /// The kind of network or FUSE file system under a path; empty if local or unknown.
  std::function<std::string(const std::string&)> remote;
  /// Whether a file can be made there, or in the nearest parent that exists.
  std::function<bool(const std::string&)> writable;
  /// The owner of a folder; nullopt if it does not exist.
  std::function<std::optional<unsigned>(const std::string&)> owner;
};

/// $XDG_STATE_HOME/dtlaunch, on any file system; else ~/.local/state/dtlaunch. If that is on a
/// network or FUSE file system, whose stalls would delay every commit, or the home is not to be
/// written (that of a random uid is often "/"): /var/tmp/dtlaunch-UID.
[[nodiscard]] MasterFolder choose_state_home(const FolderFacts& facts);
/// $XDG_RUNTIME_DIR/dtlaunch. If that is not set, is another user's, or is too long for the sockets
/// of a job with `job_letters` letters in its name: /tmp/dtlaunch-UID.
[[nodiscard]] MasterFolder choose_runtime_home(const FolderFacts& facts, std::size_t job_letters);

/// The same choices from this process's environment and machine.
[[nodiscard]] MasterFolder state_home();
[[nodiscard]] MasterFolder runtime_home(std::size_t job_letters);
/// /var/tmp/dtlaunch-UID, whatever state_home() is: another place to look for leftovers.
[[nodiscard]] std::string shared_state_home();

/// The network or FUSE file system ("NFS", "FUSE") of `path` or its nearest existing parent; empty
/// for any other file system and if it cannot be determined.
[[nodiscard]] std::string remote_file_system(const std::string& path);

/// Makes a job's folder in state_home() or runtime_home(), and the folders above it. In /tmp or
/// /var/tmp, `home` must be owned by the user, with mode 0700, and not be a link. The error names
/// the variable.
[[nodiscard]] Result<void> make_job_folder(const MasterFolder& home, const std::string& job);

/// Makes the folder of a job's control socket, `.../JOB/control`, where it is missing: a reboot, a
/// logout and a cleaner of /tmp remove it. Returns the socket's path: another one, in
/// runtime_home(), where the folder cannot be made there.
[[nodiscard]] Result<std::string> make_socket_folder(const std::string& socket);

}  // namespace dt::io
