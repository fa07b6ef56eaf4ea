/// dtbench over real hosts: `-H` lets dtlaunch start `dtbench kv` as the training command on them,
/// and there each is one worker of the job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "test/bench/kv/measure.h"
#include "test/bench/kv/options.h"

namespace dt::bench {

/// Replaces this process by dtlaunch, with the options for a job.
[[noreturn]] void exec_dtlaunch(const KvOptions& options);

/// Whether dtlaunch started this process.
[[nodiscard]] bool is_in_job();

struct JobResult {
  std::uint32_t workers = 0;
  std::uint32_t servers = 0;
  kv::Transport transport{};
  bool is_reporter = false;  ///< Rank 0, which prints the results.
  std::vector<Measurement> measurements;
};
/// Runs this worker's part of the job; returns the measurements of all workers.
[[nodiscard]] JobResult run_in_job(const KvOptions& options);

}  // namespace dt::bench
