/// What is to be done about the holders (holders.h) of a job, from what Slurm's queue and the job
/// say. Stateless: whoever does it again, or after another one has died half way, does no harm.
/// Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/launch/holders.h"

namespace dt {

/// A host as the job knows it.
struct JobHost {
  std::uint32_t in_file = 0;  ///< Workers in the host_worker in force, within --max-workers or not.
  std::uint32_t empty = 0;    ///< Those of them that have left for good.
  bool is_running = false;    ///< A worker there is not gone yet.
  bool is_given_up = false;   ///< The job tries it no more.
  /// It is reached through a holder: not of the initial launch, and no node of the job's own
  /// allocation.
  bool needs_holder = false;
  bool is_leaving = false;  ///< It goes away by a notice, or has.
};

/// What the job says.
struct JobWish {
  bool lets_go = false;           ///< It has ended: nothing is wanted.
  std::uint32_t max_workers = 0;  ///< 0: no limit.
  std::uint32_t wanted = 0;       ///< Workers in host_worker, without those that go away.
  std::uint32_t lines = 0;        ///< Workers in host_worker.
  std::map<std::string, JobHost> hosts = {};
};

/// The host is added to the job, unless it is there.
struct AddHost {
  std::string node;
  std::uint32_t slots = 1;
  friend bool operator==(const AddHost&, const AddHost&) = default;
};
/// The holder's comment says from now on that its host was added.
struct MarkJoined {
  std::uint32_t id = 0;
  std::uint32_t slots = 1;
  friend bool operator==(const MarkJoined&, const MarkJoined&) = default;
};
/// The node is given back. The notice of a cancelled holder submits no replacement.
struct CancelHolder {
  std::uint32_t id = 0;
  std::string why;
  friend bool operator==(const CancelHolder&, const CancelHolder&) = default;
};
/// The host's lines are taken out of host_worker: it cannot be reached any more.
struct DropHost {
  std::string node;
  friend bool operator==(const DropHost&, const DropHost&) = default;
};
/// Slurm takes the holder's node: a replacement is submitted unless `is_asked_for`, and the holder
/// loses its mark `kept`. Slurm does not change the comment of a holder that is ending.
struct ReplaceHolder {
  std::uint32_t id = 0;
  bool is_asked_for = false;
  friend bool operator==(const ReplaceHolder&, const ReplaceHolder&) = default;
};
using HolderAction = std::variant<AddHost, MarkJoined, CancelHolder, DropHost, ReplaceHolder>;

/// `holders`: one complete answer of squeue, in its order, then kept holders that left the queue
/// without a replacement, in state kEnding. `wish` is newer than the answer. A host is dropped only
/// if it was in `unheld` of the previous poll.
struct HolderPlan {
  std::vector<HolderAction> actions;
  std::vector<std::string> unheld;  ///< Hosts whose holder the queue does not have.
};
[[nodiscard]] HolderPlan plan_holders(const std::vector<Holder>& holders, const JobWish& wish,
                                      const std::vector<std::string>& unheld_before);

/// Which holders `dtctl shrink` lets go: pending ones first, then those that run, the newest first.
/// Fewer than `count` if there are no more.
[[nodiscard]] std::vector<Holder> newest_holders(const std::vector<Holder>& holders,
                                                 std::size_t count);

}  // namespace dt
