/// Starts one process: own group, own pipes, dies with its parent.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "io/fd.h"

namespace dt::launcher {

struct ChildSpec {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;  ///< All of it. PATH here finds argv[0].
  std::string cwd;  ///< If it cannot be entered: `home`, and a line on the child's stderr.
  std::string home = {};
  mode_t umask = 022;
  std::optional<rlimit> descriptor_limit = {};  ///< None: the present one.
};

/// A forked child; whether its exec went well is read from `exec_result`.
struct Child {
  pid_t pid = 0;  ///< Also its process group.
  io::Fd pidfd;   ///< Readable when it has ended.
  io::Fd out;     ///< Read ends, non-blocking.
  io::Fd err;
  io::Fd exec_result;  ///< Non-blocking. End of file: running. Else the bytes of an errno value.
};

/// Forks. Call it on the main thread of a process with one thread: the parent-death signal (KILL)
/// comes when the forking thread ends. The child has default signals, nothing on stdin and no
/// other descriptor of this process. Never waits for the exec, which may hang on a stalled volume.
[[nodiscard]] Result<Child> start_child(const ChildSpec& spec);

/// Forks a child that tries whether `folder` can be entered. The pipe, non-blocking, delivers an
/// int, 0 or an errno: nothing while the folder's file system does not answer, end of file if the
/// child was killed. The caller reaps the child. Call it where start_child() may be called.
[[nodiscard]] Result<io::Fd> ask_folder(const std::string& folder);

/// Why exec failed with `number`, as a sentence for the person who typed the command.
[[nodiscard]] std::string explain_exec_failure(int number, const std::string& command,
                                               const std::string& host);

}  // namespace dt::launcher
