/// `dtctl wait`: follows a job until conditions hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/asio.h"
#include "supervisor/dtctl/condition.h"

namespace dt::supervisor {

struct WaitOptions {
  std::string job_dir;
  std::vector<Condition> conditions;  ///< All have to hold at once; at least one.
  std::optional<Duration> timeout;    ///< Without one until they hold or the job ends.
  bool for_start = false;             ///< Waits also for a job that does not exist yet.
};

enum class WaitEnd {
  kHold,      ///< All conditions held.
  kTimeout,   ///< Not in time.
  kNoJob,     ///< No job is running there, or it ended before they held.
  kNotUsable  ///< A condition names a field that no status has.
};

struct Waited {
  WaitEnd end = WaitEnd::kHold;
  std::string why;  ///< The reason; empty for kHold.
};

/// Requests the status whenever the supervisor reports a change (io/job/control_protocol.h,
/// "changes"). Waits for a supervisor that has died: it may be started again. Events of the job's
/// earlier supervisors come from events.jsonl.
io::awaitable<Waited> wait_for_conditions(WaitOptions options);

}  // namespace dt::supervisor
