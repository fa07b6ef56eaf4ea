/// Which parameters each worker has initialised before the first epoch boundary, and who is at a
/// boundary. Workers with different parameters would wait for one another for ever: at the first
/// boundary all have said theirs, and each is compared with the first. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "core/base/id.h"

namespace dt::kv {

class KeySets {
 public:
  /// A parameter that the first worker has and another one lacks.
  struct Lack {
    KeyId key;
    WorkerId first;
  };

  /// The worker initialises this parameter. Does nothing after the first boundary.
  void add(WorkerId worker, KeyId key);
  /// The worker creates no key before the boundary at which it is.
  void arrive(WorkerId worker) { arrived_.insert(worker); }
  [[nodiscard]] bool has_arrived(WorkerId worker) const { return arrived_.contains(worker); }
  /// Before the first boundary: the first parameter that `first` has and `worker` lacks.
  [[nodiscard]] std::optional<KeyId> lack_of(WorkerId worker, WorkerId first) const;
  /// The epoch of these workers, in rank order, has ended. At the first boundary they are compared;
  /// a worker that has initialised no parameter is not.
  void end_epoch(const std::vector<WorkerId>& workers);
  /// What the comparison has found; none: nothing.
  [[nodiscard]] std::optional<Lack> lack_of(WorkerId worker) const;

 private:
  bool is_compared_ = false;
  std::map<WorkerId, std::vector<bool>> has_;  ///< By KeyId. Empty after the comparison.
  std::map<WorkerId, Lack> lacks_;
  std::set<WorkerId> arrived_;
};

}  // namespace dt::kv
