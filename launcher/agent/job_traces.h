/// What jobs have on this machine: processes, by the mark in their environment and by the locks
/// that agents and guards hold; folders of sockets; segments of shared memory. Only this user's,
/// and nothing by a program's name.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/fd.h"

namespace dt::launcher {

struct JobProcess {
  pid_t pid = 0;
  io::Fd handle;
  std::string name;  ///< For people: the kernel's short one.
};

struct JobTraces {
  std::vector<JobProcess> processes;
  std::set<std::string> folders;   ///< Those of sockets and locks.
  std::set<std::string> segments;  ///< Files in /dev/shm of its processes, as libraries name them.
  /// A bridge is there: the job's supervisor has a connection to its agent.
  bool is_attached = false;
  bool has_agent = false;  ///< Somebody holds the agent's lock: the agent, or its guard.
};

/// By the jobs' names, those that `wants`. This process and those above it are left out.
[[nodiscard]] std::map<std::string, JobTraces> find_job_traces(
    const std::function<bool(const std::string& job)>& wants);

/// Whether a process of this user has the file open or mapped.
[[nodiscard]] bool is_file_used(const std::string& path);

/// Whether a process of this user runs a program of the folder.
[[nodiscard]] bool runs_from(const std::string& folder);

}  // namespace dt::launcher
