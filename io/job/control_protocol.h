/// The protocol on a job's control socket: dtlaunch and dtctl on one side, the supervisor on the
/// other. Frames as everywhere; the requests and replies are JSON inside, for people and scripts.
///
///     {"op":"status"}                  -> the status object (see supervisor/control/status.h)
///     {"op":"stop","force":false,"why":"Ctrl-C"} -> {"ok":true}; the job ends, JobEnded follows
///     {"op":"add","host":"h","slots":1} / {"op":"remove","host":"h"} -> edits host_worker;
///                                         {"ok":true,"note":"why nothing joins yet"} where so
///     {"op":"events","from":N}         -> {"events":[...],"next":N}
///     {"op":"changes","from":N}        -> {"ok":true,"changes":M}: as soon as M, the number of the
///                                         newest change, is not N; after 1 s in any case
///     {"op":"console","owner":true}    -> {"ok":true}, then Console frames, then JobEnded
/// Errors: {"ok":false,"error":"..."}.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/wire.h"

namespace dt::io {

struct ControlRequest {
  static constexpr std::uint16_t kType = 160;
  std::string json;
  DT_FIELDS(json)
};

struct ControlReply {
  static constexpr std::uint16_t kType = 161;
  std::string json;
  DT_FIELDS(json)
};

/// Text for the terminal of whoever follows the console: the supervisor's own lines and processes'
/// output, already prefixed.
struct Console {
  static constexpr std::uint16_t kType = 162;
  bool is_stderr = false;
  std::string bytes;
  DT_FIELDS(is_stderr, bytes)
};

/// The last frame of a job's console.
struct JobEnded {
  static constexpr std::uint16_t kType = 163;
  std::int32_t exit_code = 0;
  std::string message;
  DT_FIELDS(exit_code, message)
};

/// Exit codes of dtlaunch, documented in its man page. A job that ran ends with the code of the
/// first failing worker (128 + signal) or 0; these are dtlaunch's own.
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
  kExitCommandFailed = 127,  ///< train_cmd could not be executed.
  kExitInterrupted = 130,    ///< Ctrl-C, TERM or dtctl stop.
};

}  // namespace dt::io
