/// Which hosts a command of dtctl is for, and how they are reached: those of -H or -w, else of the
/// folder's job, else of the allocation around this process. A job's way of reaching hosts also
/// serves hosts that are not its own.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/files/hosts.h"
#include "io/flags.h"
#include "io/job/spec.h"

namespace dt::supervisor {

/// Without a slash at its end. Throws ctl::Failed where the present folder has been removed.
[[nodiscard]] std::string absolute_folder(const std::string& folder);

/// What the command line has of it.
struct HostsChoice {
  HostsChoice() { spec.ssh.connect_timeout = kConnect; }
  /// A person waits: with it a host that is down costs less than 10 s, silent in the handshake too.
  static constexpr Duration kConnect = std::chrono::seconds(4);
  std::string job_dir;   ///< Absolute.
  std::string hostfile;  ///< -H
  io::Words words;       ///< -w
  std::string launcher;  ///< --launcher
  /// The job's, or one of no job; its fields for ssh and starters are options.
  io::JobSpec spec;
};

/// -H, -w, --launcher, --rsh and those for ssh.
[[nodiscard]] io::Flags hosts_flags(HostsChoice& choice);

struct ChosenHosts {
  std::string job;  ///< The folder's; empty: there is none.
  io::JobSpec spec;
  std::vector<Host> hosts;  ///< Each once; at least one.
};

/// `words` of the program fill a choice by these flags of it: what a job's spec has is its
/// defaults. kInvalid: no host is named, or one is named wrongly.
[[nodiscard]] Result<ChosenHosts> choose_hosts(
    const std::string& job_dir, const io::Program& program, const io::Words& words,
    const std::function<io::Flags(HostsChoice&)>& flags_of);

}  // namespace dt::supervisor
