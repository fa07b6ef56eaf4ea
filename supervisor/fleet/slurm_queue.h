/// The holders of one job in Slurm's queue (core/launch/holders.h): listed, asked for, marked, let
/// go. Each call runs one program of Slurm's and blocks, for 15 s at most. Errors are kUnavailable
/// with the program's own words.
#pragma once

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/launch/holders.h"

namespace dt::supervisor {

class SlurmQueue {
 public:
  explicit SlurmQueue(std::string job) : job_(std::move(job)) {}

  [[nodiscard]] Result<std::vector<Machine>> list() const;
  /// One more holder; its number.
  [[nodiscard]] Result<std::string> submit(const HolderOrder& order) const;
  /// Gives the holder its comment.
  [[nodiscard]] Result<void> mark(const Machine& holder) const;
  /// A holder that is gone already is no error.
  [[nodiscard]] Result<void> cancel(const std::string& id) const;
  /// The same, only if it does not run yet.
  [[nodiscard]] Result<void> cancel_pending(const std::string& id) const;

 private:
  std::string job_;
};

}  // namespace dt::supervisor
