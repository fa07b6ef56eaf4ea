/// Members that exited with code 0 without a LEAVE. Until another member arrives at a boundary this
/// is ambiguous: the program has ended for all of them, or that one has left. Pure;
/// core/job/workers.h decides.
#pragma once

#include <map>

#include "core/base/id.h"
#include "core/files/hosts.h"

namespace dt {

class CleanExits {
 public:
  void ended(WorkerId worker, const Host& host) { undecided_.emplace(worker, host); }
  /// The other members continue: it has left.
  void left(WorkerId worker) { undecided_.erase(worker); }

  [[nodiscard]] bool any() const { return !undecided_.empty(); }
  [[nodiscard]] const std::map<WorkerId, Host>& undecided() const { return undecided_; }

 private:
  std::map<WorkerId, Host> undecided_;
};

}  // namespace dt
