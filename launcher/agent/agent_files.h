/// Where the files of an agent lie on its host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/result.h"
#include "io/fd.h"

namespace dt::launcher {

struct AgentFiles {
  std::string folder;  ///< io::default_runtime_dir(job), 0700
  std::string socket;  ///< 0600
  std::string lock;    ///< Held (flock) by the agent and its guard as long as either lives.
  std::string log;     ///< The agent's stderr.
  std::string term;    ///< See taken_over_by().
};

/// The descriptor on which a daemon gets its lock.
inline constexpr int kDaemonLockFd = 3;

/// An error for job names that are no file names or a folder too long for a socket's address.
[[nodiscard]] Result<AgentFiles> agent_files(const std::string& job, const std::string& host);

/// Where an agent of the job may be, the likeliest first: at `socket`, if that is known, then
/// `own`. XDG_RUNTIME_DIR differs between sessions: it is unset under sudo, cron and in system
/// units, and set by systemd at a login.
[[nodiscard]] std::vector<AgentFiles> agent_files_anywhere(const std::string& job,
                                                           const std::string& host,
                                                           const AgentFiles& own,
                                                           const std::string& socket);

/// A connection to the agent at one of these places; nothing: none answers.
[[nodiscard]] std::optional<io::Fd> connect_to_agent(const std::vector<AgentFiles>& all);
/// An agent at one of these places, or its guard, lives.
[[nodiscard]] bool is_any_held(const std::vector<AgentFiles>& all);

/// The term of the master that has taken the job over, by a file at one of these places; 0: none
/// has. No agent is started for a lower one. A file that is no such file, or not ours, counts as
/// absent, with a line on stderr.
[[nodiscard]] Term taken_over_by(const std::vector<AgentFiles>& all);
/// Remembers that, until dtctl clean or the pruning of ended jobs. The folder exists.
[[nodiscard]] Result<void> note_take_over(const AgentFiles& files, Term term);

/// The lock; none if another process holds it, or if its folder is missing, which an earlier
/// agent's guard removes last. Its last owner may remove the file between our open and our lock:
/// then that locks nothing, and the file is opened again.
[[nodiscard]] Result<std::optional<io::Fd>> take_agent_lock(const std::string& path);

/// Makes the folder (0700, of this user) and checks that no other user can replace it.
[[nodiscard]] Result<void> make_agent_folder(const AgentFiles& files);

}  // namespace dt::launcher
