/// Looks at the lock of the job's folder again and again: whether another master has taken the
/// folder over, and whether that is known at all.
#pragma once

#include <functional>
#include <string>

#include "io/clock.h"
#include "supervisor/context/supervisor_context.h"
#include "supervisor/files/job_files.h"

namespace dt::supervisor {

/// One thread. Everything given outlives it.
class LockWatch {
 public:
  LockWatch(SupervisorContext& context, JobFiles& files) : context_(context), files_(files) {}

  /// Until another master has the folder; then on_taken tells who.
  io::awaitable<void> run();
  /// Posts when the lock has not been read for long, and when it is again.
  void look();

  /// How long it has not been read; 0 while that is not long.
  [[nodiscard]] Duration doubtful_for() const {
    return is_doubtful_ ? io::steady_now() - seen_at_ : Duration{};
  }
  std::function<void(const std::string& why)> on_taken;

 private:
  SupervisorContext& context_;
  JobFiles& files_;
  Time seen_at_ = io::steady_now();  ///< It was read, and this job's.
  bool is_doubtful_ = false;         ///< LockDoubtful was posted.
};

}  // namespace dt::supervisor
