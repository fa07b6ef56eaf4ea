/// Where jobs' files lie on the master: their state, which is the journal, and their sockets. Who
/// asks with the same environment gets the same folders.
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
  /// What people should know of the choice, a sentence; empty: it is the usual one.
  std::string notice;
  std::string variable;  ///< What names it, or would: "HOME".
};

/// Longest name of a unix socket, without its zero.
inline constexpr std::size_t kLongestSocket = 107;

/// What the choice depends on.
struct FolderFacts {
  std::optional<std::string> given;  ///< XDG_STATE_HOME or XDG_RUNTIME_DIR, if it is set.
  std::string home;
  unsigned uid = 0;
  /// The kind of network or FUSE file system under a path; empty: a local one, or not known.
  std::function<std::string(const std::string&)> remote;
  /// The owner of a folder; nothing: it is not there.
  std::function<std::optional<unsigned>(const std::string&)> owner;
};

/// $XDG_STATE_HOME/dtlaunch, wherever that is; else ~/.local/state/dtlaunch. Where that would be on
/// a network or FUSE file system, whose stalls hold up every commit: /var/tmp/dtlaunch-UID.
[[nodiscard]] MasterFolder choose_state_home(const FolderFacts& facts);
/// $XDG_RUNTIME_DIR/dtlaunch; where that is not set, belongs to somebody else, or is too long for
/// the sockets of a job whose name has so many letters: /tmp/dtlaunch-UID.
[[nodiscard]] MasterFolder choose_runtime_home(const FolderFacts& facts, std::size_t job_letters);

/// The same, of this process's environment and this machine.
[[nodiscard]] MasterFolder state_home();
[[nodiscard]] MasterFolder runtime_home(std::size_t job_letters);
/// Both ways that the state may have gone: for who looks for what was left.
[[nodiscard]] std::string shared_state_home();

/// "nfs", "fuse" and the like for what `path`, or its nearest parent that is there, lies on; empty
/// for any other file system, and where it cannot be found out.
[[nodiscard]] std::string remote_file_system(const std::string& path);

/// Makes a job's folder in that of state_home() or runtime_home(), and the folders above it. One
/// that lies in /tmp or /var/tmp must be the user's own, with mode 0700 and no link. The error
/// names the variable.
[[nodiscard]] Result<void> make_job_folder(const MasterFolder& home, const std::string& job);

}  // namespace dt::io
