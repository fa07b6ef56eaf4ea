/// `dtctl wait`: follows a job until conditions hold.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "io/awaitable.h"
#include "supervisor/dtctl/condition.h"

namespace dt::supervisor {

struct WaitOptions {
  std::string job_dir;
  std::vector<Condition> conditions;  ///< All have to hold at once; at least one.
  std::optional<Duration> timeout;    ///< Without one until they hold or the job ends.
  bool for_start = false;             ///< Waits also for a job that does not exist yet.
};

inline constexpr int kExitNoJob = 3;  ///< No job is running there, or it ended before they held.
inline constexpr int kExitLate = 4;   ///< Not in time.

struct Waited {
  /// kExitOk: all conditions held. kExitUsage: one of them names a field that no status has.
  int exit_code = 0;
  std::string why = {};  ///< They did not hold.
};

/// Requests the status whenever the supervisor reports a change (io/job/control_protocol.h,
/// "changes"). Waits for a supervisor that has died: it may be started again. Events of the job's
/// earlier supervisors come from events.jsonl.
io::awaitable<Waited> wait_for_conditions(WaitOptions options);

}  // namespace dt::supervisor
