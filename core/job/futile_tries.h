/// Restarts without progress: deaths of members and failed starts since the last completed epoch,
/// and losses of servers since the last epoch that began for the first time. Too many end the job.
/// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/base/id.h"

namespace dt {

class FutileTries {
 public:
  /// A member died, or a start failed while no member was alive.
  void add(std::string why) {
    ++count_;
    why_ = std::move(why);
  }
  /// Servers were lost.
  void add_rollback() { ++rollbacks_; }
  void epoch_completed() { count_ = 0; }
  void epoch_begins(Epoch epoch) {
    if (furthest_ && epoch <= *furthest_) return;
    furthest_ = epoch;
    rollbacks_ = 0;
  }

  [[nodiscard]] std::uint32_t count() const { return count_; }
  [[nodiscard]] std::uint32_t rollbacks() const { return rollbacks_; }
  /// Why the last one failed.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  std::uint32_t count_ = 0;
  std::string why_;
  std::uint32_t rollbacks_ = 0;
  std::optional<Epoch> furthest_;
};

}  // namespace dt
