/// The options of dtlaunch that are fields of a job's spec. spec.json and the variables of the
/// job's processes come from the same rows.
#pragma once

#include "io/flags.h"
#include "io/job/spec.h"

namespace dt::io {

/// `spec` outlives the flags.
[[nodiscard]] Flags job_flags(JobSpec& spec);

}  // namespace dt::io
