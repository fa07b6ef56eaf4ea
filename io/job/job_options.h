/// What the job machine is to know of a job's spec.
#pragma once

#include "core/job/job.h"
#include "io/job/spec.h"

namespace dt::io {

/// `seed` and `is_adopted` are the caller's.
[[nodiscard]] JobOptions job_options(const JobSpec& spec);

}  // namespace dt::io
