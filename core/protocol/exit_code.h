/// Exit codes of our programs; the man pages have those of each. A job that ran ends with the code
/// of the first failing worker (128 + signal) or 0; those from 65 on are dtlaunch's own.
#pragma once

namespace dt {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,          ///< Anything without a code of its own.
  kExitUsage = 2,            ///< Wrong option or file; nothing was started.
  kExitUnreachable = 65,     ///< A base host could not be reached or prepared.
  kExitStartTimeout = 66,    ///< A base worker did not reach its first boundary in time.
  kExitServerLost = 67,      ///< A kvstore server died and no checkpoint could be used.
  kExitJobRunning = 68,      ///< A job is running in this folder.
  kExitSupervisorLost = 69,  ///< The supervisor died and could not be restarted.
  kExitNoProgress = 70,      ///< Restart after restart and no epoch completed: do not requeue.
  kExitTooFewWorkers = 71,   ///< Fewer workers than --min-workers for too long.
  kExitNoServerDevice = 72,  ///< A server, and its job: it lacks the device it was to use.
  kExitCheckFailed = 73,     ///< A host does not pass dtlaunch --check or --preflight.
  kExitStandstill = 74,      ///< All workers wait for each other: do not requeue.
  kExitHostsGone = 75,       ///< The job's hosts go away: start it again where there are others.
  kExitCommandFailed = 127,  ///< train_cmd could not be executed.
  kExitInterrupted = 130,    ///< Ctrl-C, TERM or dtctl stop.
};

}  // namespace dt
