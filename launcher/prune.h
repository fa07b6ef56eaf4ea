/// Removes what ended jobs left in a user's folders of state and sockets, a week later, when the
/// next job starts.
#pragma once

#include <chrono>
#include <string>

namespace dt::launcher {

/// As io::make_job_name makes them: 20261120-223000-1a2b3c4d.
[[nodiscard]] bool is_job_name(const std::string& name);

/// Removes from `folder` the folders of jobs that changed last before `now` less a week (and less
/// the job's --orphan-timeout, while hosts may still be waiting for a supervisor), and of which no
/// process lives: no file is locked, as a supervisor and an agent lock theirs, and no socket
/// answers. Nothing else there is removed. Never fails: what cannot be removed stays.
void prune_jobs(const std::string& folder, std::chrono::system_clock::time_point now);

/// Both of this user's folders on the master (io::default_state_dir, io::default_runtime_dir), now.
void prune_ended_jobs();

}  // namespace dt::launcher
