/// `dtctl wait`: follows a job until conditions hold.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/awaitable.h"
#include "io/volume_answers.h"
#include "supervisor/dtctl/condition.h"

namespace dt::supervisor {

struct WaitOptions {
  std::shared_ptr<io::VolumeQuestion> volume;  ///< Asks the volume of the folder.
  std::vector<Condition> conditions;           ///< All have to hold at once; at least one.
  /// Without it until they hold or the job ends.
  std::optional<std::chrono::steady_clock::time_point> until;
  bool for_start = false;  ///< Waits also for a job that does not exist yet.
};

inline constexpr int kExitNoJob = 3;  ///< No job is running there, or it ended before they held.
inline constexpr int kExitLate = 4;   ///< Not in time.

struct Waited {
  int exit_code = 0;     ///< kExitOk: all conditions held.
  std::string why = {};  ///< They did not hold.
};

/// Requests the status whenever the supervisor reports a change (io/job/control_protocol.h,
/// "changes"). Waits for a supervisor that has died: it may be started again. Events of the job's
/// earlier supervisors come from events.jsonl.
io::awaitable<Waited> wait_for_conditions(WaitOptions options);

}  // namespace dt::supervisor
