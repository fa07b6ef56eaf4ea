/// The protocol on a job's control socket between dtlaunch or dtctl and the supervisor. Messages
/// are frames; requests and replies contain JSON, for people and scripts.
///
///     {"op":"status"}                  -> the status (io/job/status.h)
///     {"op":"stop","force":false,"why":"Ctrl-C"} -> {"ok":true}; the job ends, JobEnded follows
///     {"op":"add","host":"h","slots":1} / {"op":"remove","host":"h"} -> edits host_worker;
///                                         {"ok":true,"note":"why nothing joins yet"} where so
///                                         "add" with "unless_there":true adds what is missing;
///                                         "remove" with "machine_is_gone":true: nothing can run
///                                         there any more, so nobody waits for the host's end
///     {"op":"grow","slots":N,"asked":M} -> {"ok":true,"log","agent","excluded":[node...]}: N more
///                                         workers may be asked for beside M that are; for dtctl
///                                         With --fleet: {"ok":true,"said":"text"}: N more machines
///                                         are asked for, within 30 s
///     {"op":"shrink","slots":N,"host":"h"} -> {"ok":true,"said":"text"}; h, or the N newest
///                                         machines of --fleet, are left and go back
///     {"op":"fleet","from":N,"deadline_s":T,"report":"JSON"} -> what the job wishes of holders
///                                         (supervisor/control/fleet_requests.h), as soon as it is
///                                         to be looked at, after T in any case; for dtfleet
///     {"op":"leave","host":"h","deadline_s":120,"why":"text","cancel":false}
///                                      -> {"ok":true,"note":"what becomes of it"}; the host goes
///                                         away, without "deadline_s" at no known time, without
///                                         "host" all do; "cancel": it stays
///     {"op":"events","from":N}         -> {"events":[...],"next":N}
///     {"op":"changes","from":N}        -> {"ok":true,"changes":M}: as soon as M, the number of the
///                                         newest change, is not N; after 1 s in any case
///     {"op":"console","owner":true}    -> {"ok":true}, then Console frames, then JobEnded
/// Errors: {"ok":false,"error":"..."}.
///
/// A request that changes the job may contain "control":N, the sender's kControlVersion; with
/// another one than the supervisor's it is refused.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/wire.h"

namespace dt::io {

/// Rises when a request or a reply changes its meaning.
inline constexpr std::uint32_t kControlVersion = 2;

struct ControlRequest {
  static constexpr std::uint16_t kType = 160;
  std::string json;
};

struct ControlReply {
  static constexpr std::uint16_t kType = 161;
  std::string json;
};

/// Text for the terminal of a client that follows the console: the supervisor's own lines and the
/// processes' output, with its prefixes.
struct Console {
  static constexpr std::uint16_t kType = 162;
  bool is_stderr = false;
  std::string bytes;
};

/// The last frame of a job's console.
struct JobEnded {
  static constexpr std::uint16_t kType = 163;
  std::int32_t exit_code = 0;
  std::string message;
};

}  // namespace dt::io
