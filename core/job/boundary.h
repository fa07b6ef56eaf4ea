/// The view, the arrivals at the next boundary, and which servers know the present commit. Pure;
/// core/job/views.h acts on a complete boundary.
///
///     training --(every contributor arrived)--> committing --(every server acked)--> released
///
/// After a rollback every member has to arrive at the epoch to return to.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/job/records.h"

namespace dt {

class Boundary {
 public:
  enum class Arrival {
    kCounted,   ///< Waits for the others.
    kReleased,  ///< This epoch has begun: release it (again).
    kWrong,     ///< Neither the present nor the next epoch.
  };

  /// The view before the first boundary.
  void begin(const std::vector<WorkerId>& members, Generation generation = Generation(1));
  /// At a boundary: a new view; arrivals are forgotten. In mid-epoch: ranks and world size stay.
  void commit(const Committed& r);
  /// A boundary without a change.
  void begin_epoch(Epoch epoch);
  /// New servers have the values at that epoch's begin: it begins next, whatever the present one
  /// is. Arrivals and acknowledgements are forgotten; ranks and world size stay.
  void roll_back(Generation generation, Epoch epoch);

  /// A member calls epoch_boundary(epoch).
  [[nodiscard]] Arrival arrive(WorkerId worker, Epoch epoch);
  /// The worker's process has ended.
  void forget(WorkerId worker);
  /// The complete boundary has too few members: it waits for more since then.
  void waits_for_members(Time since) { below_least_since_ = since; }

  /// The worker waits for its release, into the present epoch or out of the job.
  void await_release(WorkerId worker) { unreleased_.insert(worker); }
  void released(WorkerId worker) { unreleased_.erase(worker); }
  void acked(ServerId server, Generation generation);

  /// The epoch that begins next if every contributor has arrived (and there is one); nothing
  /// otherwise. Before the first boundary all must name the same epoch: see odd_one().
  [[nodiscard]] std::optional<Epoch> complete() const;
  /// Before the first boundary: a worker whose epoch differs from the first arriver's.
  [[nodiscard]] std::optional<WorkerId> odd_one() const;
  /// Contributors that have not arrived.
  [[nodiscard]] std::vector<WorkerId> missing() const;
  [[nodiscard]] bool is_anyone_missing() const { return missing_ > 0; }
  /// The process of a contributor has ended.
  [[nodiscard]] bool has_lost_contributor() const { return has_lost_contributor_; }
  /// The server has the present generation.
  [[nodiscard]] bool has_acked(ServerId server) const;
  /// How many servers have it.
  [[nodiscard]] std::size_t acked() const { return acks_; }

  [[nodiscard]] Generation generation() const { return generation_; }
  /// The present epoch; nothing before the first boundary.
  [[nodiscard]] std::optional<Epoch> epoch() const { return epoch_; }
  /// Rolled back and not begun again yet: the epoch that begins next.
  [[nodiscard]] const std::optional<Epoch>& returns_to() const { return returns_to_; }
  /// The present epoch was begun by a rollback.
  [[nodiscard]] bool has_returned() const { return has_returned_; }
  [[nodiscard]] const std::vector<WorkerId>& members() const { return members_; }
  [[nodiscard]] const std::vector<WorkerId>& contributors() const { return contributors_; }
  [[nodiscard]] const std::map<WorkerId, Epoch>& arrivals() const { return arrived_; }
  [[nodiscard]] const std::set<WorkerId>& unreleased() const { return unreleased_; }
  [[nodiscard]] bool awaits_release(WorkerId worker) const { return unreleased_.count(worker) > 0; }
  /// Since when the complete boundary waits for more members; nothing: it does not.
  [[nodiscard]] const std::optional<Time>& below_least_since() const { return below_least_since_; }
  [[nodiscard]] bool contributes(WorkerId worker) const { return contributing_.contains(worker); }
  [[nodiscard]] std::optional<Rank> rank_of(WorkerId worker) const;
  /// For tests: what is kept beside the state agrees with it.
  [[nodiscard]] bool index_holds() const;

 private:
  void set_members(const std::vector<WorkerId>& members);
  void set_contributors(const std::vector<WorkerId>& contributors);
  void set_generation(Generation generation);
  void note_arrival(WorkerId worker, Epoch epoch);
  void forget_arrival(WorkerId worker);
  void forget_arrivals();

  Generation generation_{0};
  std::optional<Epoch> epoch_;
  std::optional<Epoch> returns_to_;
  bool has_returned_ = false;
  std::vector<WorkerId> members_;
  std::vector<WorkerId> contributors_;
  std::map<WorkerId, Epoch> arrived_;
  std::map<ServerId, Generation> acked_;
  std::set<WorkerId> unreleased_;
  std::optional<Time> below_least_since_;
  // What the above says, kept where it changes.
  std::unordered_map<WorkerId, Rank> ranks_;   ///< Of members_.
  std::unordered_set<WorkerId> contributing_;  ///< contributors_
  std::map<Epoch, std::size_t> arrived_at_;    ///< How many of arrived_ name the epoch.
  std::size_t missing_ = 0;                    ///< Contributors that are not in arrived_.
  std::size_t acks_ = 0;                       ///< Of the present generation.
  bool has_lost_contributor_ = false;
};

}  // namespace dt
