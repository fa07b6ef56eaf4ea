/// The programs that dtagent is, but for gpu_watch.h's. Each returns its exit code.
#pragma once

#include <string>

#include "core/base/id.h"
#include "core/base/time.h"
#include "io/flags.h"

namespace dt::launcher {

struct AgentOptions {
  std::string job;
  std::string host;       ///< As written by the user.
  bool is_first = false;  ///< No agent of the job ran there before: nothing is left of one.
  Duration lonely_timeout = std::chrono::seconds(60);  ///< Never attached for so long: exit.
  /// TERM, USR1, USR2 and XCPU say that the host goes away after that (io/notice_signals.h);
  /// 0: TERM is an order to stop, as INT and a second TERM always are. A bridge passes it on to the
  /// agent that it starts only where those signals are a scheduler's.
  Duration notice_grace{};
};

/// `dtagent --daemon`, the agent. Started by `--attach --start` with the lock on kDaemonLockFd,
/// stderr on the log file, in a session of its own.
int agent_main(const AgentOptions& options);

struct BridgeOptions {
  AgentOptions agent;
  bool start = false;  ///< Start the agent if it is not there.
  /// End after an agent that was started. A scheduler that kills what a command leaves behind
  /// (Slurm, with proctrack/cgroup) then leaves the agent alone, and its node's share is free when
  /// the job has ended there.
  bool stay = false;
  bool aside = false;       ///< See signals.h.
  bool lines = false;       ///< stdin and stdout are framed: core/launch/lines.h.
  Term term;                ///< The supervisor's.
  bool takes_over = false;  ///< Lower terms start no agent here any more.
  /// Where the agent was before (AgentPlace::socket); empty: not known.
  std::string socket;
};

/// `dtagent --attach`: carries bytes between its stdin/stdout and the agent's socket, and starts
/// the agent if asked to. It holds no state: when it ends, only the supervisor's link is gone; with
/// `stay` an agent that it has started may be killed then, and so it ends after that. 0 when either
/// side closed.
int bridge_main(const BridgeOptions& options);

/// `dtagent --check`, the host's side of dtlaunch --check: a program of its own beside any agent,
/// which answers questions (core/preflight/preflight_messages.h) until its stdin ends, and leaves
/// nothing behind. `lines`: see BridgeOptions.
int check_main(bool lines);

struct CleanOptions {
  io::Words jobs;        ///< Empty: all of this user.
  io::Words spare;       ///< Not these.
  io::Words left;        ///< Whoever asks has seen that no supervisor of these can come back.
  bool dry_run = false;  ///< Only print what would be done.
  bool force = false;    ///< Also jobs that may be alive.
  bool lines = false;    ///< stdout is framed: core/launch/lines.h.
};

/// `dtagent --clean`: ends what jobs of this user left on this machine, and removes their files.
/// 1 if something could not be ended.
///
/// A job may be alive while its agent or guard lives: its supervisor, on another machine, may come
/// back to it. Such a one is left alone, unless it is in `left` and has no connection. An agent
/// that nobody comes back to ends by itself, after its orphan timeout.
///
/// Processes get TERM (and CONT, which a stopped one needs to obey), after 5 s KILL. Then go the
/// folders of sockets and locks, segments of shared memory by names of NCCL, PyTorch and Python
/// that those processes had, and bundles that nobody has used for two days. What was done is
/// printed, a line each; without a line nothing was there.
int clean_main(const CleanOptions& options);

/// `dtagent --hold`: the process of a holder (core/launch/holders.h), a scheduler's job that keeps
/// a host for one dtlaunch job. It lives as long as the agent there, so that the node is free when
/// the job has ended on it. Waits for the agent, at most `lonely_timeout`, and then for its end.
/// The scheduler's signals go to the agent, as notices that its host goes away; without an agent
/// TERM and INT end this process.
int hold_main(const AgentOptions& options);

/// `dtagent --pod`: the first process of a pod of Kubernetes whose hosts jobs use by `kubectl
/// exec`. Reaps what it is the parent of. TERM, by which a kubelet says that the pod goes away, is
/// a notice for the agents of all jobs here; the program ends when none is left.
int pod_main();

}  // namespace dt::launcher
