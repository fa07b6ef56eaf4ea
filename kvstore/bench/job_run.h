/// dtbench over real hosts: `-H` lets dtlaunch start `dtbench kv` as the training command on them,
/// and there each is one worker of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "kvstore/bench/measure.h"
#include "kvstore/bench/options.h"

namespace dt::bench {

/// Becomes dtlaunch, with the options a job may have; returns only what went wrong.
[[nodiscard]] Error exec_dtlaunch(const KvOptions& options);

/// True where dtlaunch started this process.
[[nodiscard]] bool is_in_job();

struct JobResult {
  std::uint32_t workers = 0;
  std::uint32_t servers = 0;
  kv::Transport transport{};
  bool is_reporter = false;  ///< Rank 0: the one that prints.
  std::vector<Measurement> measurements;
};
/// This worker's part of the job, and what all of them measured.
[[nodiscard]] Result<JobResult> run_in_job(const KvOptions& options);

}  // namespace dt::bench
