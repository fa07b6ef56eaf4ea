/// Whether all members wait for each other: a call that not every worker makes, or not in the same
/// order. Then no round completes and nobody arrives, whatever time passes. Pure.
///
/// Every contributor waits, in a round or at the boundary, and one of them in a round. That is
/// looked at only while nothing else can be the reason: all are connected and alive, their hosts
/// are heard, all servers are known to be well, and nobody waits for a release. Any activity of a
/// member, a commit and an epoch begin the count again.
#pragma once

#include <optional>
#include <string>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/job/context.h"
#include "core/job/hang.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

class Standstill {
 public:
  Standstill(JobContext& job, const HostTable& hosts, const ServerGroup& servers,
             const Workers& workers, LostTime& lost_time, const HangWatch& hang_watch)
      : job_(job),
        hosts_(hosts),
        servers_(servers),
        workers_(workers),
        lost_time_(lost_time),
        hang_watch_(hang_watch) {}

  /// A member was active.
  void moved();
  /// `passed`: since the last tick. Notes a standstill, and ends the job after --hang-timeout.
  void tick(Duration passed);
  /// How long it has lasted; nothing: there is none.
  [[nodiscard]] std::optional<Duration> lasted() const { return lasted_; }
  /// "in 0.weight for worker 1 and 2 more", of a contributor in a standstill.
  [[nodiscard]] std::string wait_of(WorkerId worker) const;
  /// "all workers wait for each other: worker 0 in ..."
  [[nodiscard]] std::string text() const;

 private:
  enum class Sight : std::uint8_t { kMoves, kUnknown, kStands };
  [[nodiscard]] Sight look() const;

  JobContext& job_;
  const HostTable& hosts_;
  const ServerGroup& servers_;
  const Workers& workers_;
  LostTime& lost_time_;
  const HangWatch& hang_watch_;
  Time moved_at_{};  ///< The last activity of a member.
  std::optional<Duration> lasted_;
  bool is_noted_ = false;
};

}  // namespace dt
