/// Workers that keep the others waiting: at the boundary for longer than --boundary-timeout, or in
/// a round, without any activity, for --hang-timeout. Reports and stops them. Pure; core/job/hang.h
/// measures.
///
/// A stall is a duration, added up tick by tick only while nothing else can be the reason: the
/// worker's host is heard, all servers are known to be well, and the worker was released into the
/// epoch. It restarts at zero with any activity of the worker, when an epoch begins and when the
/// servers change.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/job/context.h"
#include "core/job/hang.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/server_group.h"
#include "core/job/standstill.h"
#include "core/job/tick_time.h"
#include "core/job/workers.h"

namespace dt {

class Stragglers {
 public:
  /// How long a worker that others wait for, or that gives no sign of life, has been inactive.
  struct Stall {
    Duration lasted{};
    Time since{};                ///< Its last activity, or when it was first seen without any.
    bool is_waited_for = false;  ///< A round of others lacks its part. Otherwise: no sign of life.
    bool is_noted = false;       ///< Half of the time is over: there is a note.
    bool is_queried = false;     ///< The last query of its process's state was sent.
    std::string process;         ///< Its state in the kernel; empty until known.
  };

  Stragglers(JobContext& job, HostTable& hosts, ServerGroup& servers, Workers& workers,
             LostTime& lost_time)
      : job_(job), hosts_(hosts), servers_(servers), workers_(workers), lost_time_(lost_time) {}

  /// Who has stood still since before this term never says anything in it.
  void replayed();

  // Events.
  void traffic_seen(const FromServer<Traffic>& e);
  void progress(const FromWorker<Progress>& e);
  /// The worker was active.
  void works(WorkerId worker);
  void figures(const FromWorker<Figures>& e);
  void inspected(WorkerId worker, const std::string& text);
  void check_boundary_timeout();
  void check_hangs();

  void apply(const Committed& r) {
    standstill_.moved();
    if (r.boundary) epoch_begins();
  }
  void apply(const EpochBegan&) { epoch_begins(); }
  void apply(const WorkerGone& r);
  void apply(const RolledBack& r);

  [[nodiscard]] const std::map<WorkerId, Stall>& stalls() const { return stalls_; }
  [[nodiscard]] const Standstill& standstill() const { return standstill_; }
  [[nodiscard]] const HangWatch& hang_watch() const { return hang_watch_; }

 private:
  void epoch_begins();
  /// Contributors that the others wait for at the boundary, without those that wait in a round.
  [[nodiscard]] std::vector<WorkerId> late() const;
  /// Counts the time of those that wait in a round for a worker that stalls.
  void lose_waiting(Time since);
  void warn(WorkerId worker, Stall& stall);
  void stop(WorkerId worker);
  /// The position that a worker last reported, as text.
  [[nodiscard]] std::string last_position(WorkerId worker) const;

  JobContext& job_;
  HostTable& hosts_;
  ServerGroup& servers_;
  Workers& workers_;
  LostTime& lost_time_;
  HangWatch hang_watch_;
  Standstill standstill_{job_, hosts_, servers_, workers_, lost_time_, hang_watch_};
  std::vector<WorkerId> unheard_;  ///< Members from before this term, until a server reports.
  std::map<WorkerId, Stall> stalls_;
  TickTime time_;
  std::optional<Time> waiting_since_;  ///< Since when a boundary waits, or since its last stops.
};

}  // namespace dt
