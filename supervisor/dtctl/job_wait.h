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
  bool for_start = false;             ///< A job that is not there yet is waited for as well.
};

enum class WaitEnd {
  kHold,      ///< All conditions held.
  kTimeout,   ///< Not in time.
  kNoJob,     ///< No job is running there, or it ended before they held.
  kNotUsable  ///< A condition names what no status has.
};

struct Waited {
  WaitEnd end = WaitEnd::kHold;
  std::string why;  ///< Of all but kHold.
};

/// The supervisor says when something has changed (io/job/control_protocol.h, "changes"), and its
/// state is asked for then. A supervisor that has died is waited for: it may be started again.
/// Events of earlier supervisors of the job come from events.jsonl.
io::awaitable<Waited> wait_for_conditions(WaitOptions options);

}  // namespace dt::supervisor
