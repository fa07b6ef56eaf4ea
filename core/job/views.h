/// When an epoch begins and with which members, and when a death shrinks the contributor set: plans
/// the boundary, commits it, and releases the workers once all servers have acknowledged. Pure.
#pragma once

#include <string>

#include "core/base/id.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

class Views {
 public:
  Views(JobContext& job, HostTable& hosts, ServerGroup& servers, Workers& workers,
        LostTime& lost_time)
      : job_(job), hosts_(hosts), servers_(servers), workers_(workers), lost_time_(lost_time) {}

  /// Removes members that died from the contributors of the present epoch.
  void shrink();
  /// Begins the next epoch if all contributors have arrived and nothing else is awaited.
  void cross_boundary();
  /// Releases the waiting workers, once all servers know the present commit.
  void release();
  /// Ends the job if it lacked members for --min-workers-timeout.
  void check_least();

  void apply(const Committed& r);
  void apply(const EpochBegan& r);
  void apply(const RolledBack& r);

  /// What the next boundary waits for, or why nothing changes; empty if nothing is pending.
  [[nodiscard]] std::string pending_reason() const;

 private:
  /// A worker of the planned view is being stopped, since its host goes away: the boundary waits
  /// for its end.
  [[nodiscard]] bool waits_for_end(const Plan& plan);
  /// The planned view has fewer members than --min-workers: the boundary waits.
  [[nodiscard]] bool waits_for_more(const Plan& plan, Epoch next);
  /// Begins an epoch with the planned changes, if there are any, in one record.
  void commit(Epoch epoch, const Plan& plan);
  [[nodiscard]] Committed committed(Epoch epoch, const Plan& plan, bool saves) const;
  void note_committed(const Committed& c, const Plan& plan);
  /// The release for a waiting worker; nothing: it is neither a member nor leaving.
  [[nodiscard]] std::optional<Release> release_of(const Worker& worker) const;

  JobContext& job_;
  HostTable& hosts_;
  ServerGroup& servers_;
  Workers& workers_;
  LostTime& lost_time_;
  std::string pending_reason_;    ///< Why a complete boundary is not crossed, or not wholly.
  bool awaits_arrivals_ = false;  ///< The boundary is not complete.
};

}  // namespace dt
