/// Restarts the group of workers of a command that opens no kvstore (--on-change restart): after an
/// edit and after a death all workers are stopped, and a new group with dense ranks begins.
///
///     runs --(the hosts with workers are to change, or a worker has died)--> stops
///       ^------(all have ended, and the hosts of the next group are ready)----'
///
/// While a group runs, the hosts that are to join it are reached and prepared. Workers of a new
/// group have new ids, and all start at once. A host that is lost or given up is left out, and
/// joins again by another restart; one whose agent alone is gone answers, and is waited for. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/server_group.h"
#include "core/job/workers.h"

namespace dt {

/// A group in which a worker dies sooner than that makes its restart a futile one.
inline constexpr Duration kGroupLives = kLives;
/// In any group but the first a process that does not run for so long, while another one does,
/// costs its host alone.
inline constexpr Duration kOthersRun = std::chrono::seconds(60);

class GroupRestart {
 public:
  GroupRestart(JobContext& job, HostTable& hosts, ServerGroup& servers, Workers& workers,
               LostTime& lost_time)
      : job_(job), hosts_(hosts), servers_(servers), workers_(workers), lost_time_(lost_time) {}

  /// A term begins.
  void begin();

  // Events.
  /// A host is silent for too long: no group waits for it.
  void host_lost(const Host& host) { lost_.insert(host); }
  /// The processes of a host are lost, with it or with its agent.
  void processes_lost(const Host& host);
  /// An agent is attached, with these processes. Those of former groups are being killed.
  void attached(const Host& host, const std::vector<ProcessReport>& there);
  /// A worker of a former group may have ended at last.
  void ended(WorkerId worker);
  /// Ends the job where processes of the first group do not run, or hosts do not come, for too
  /// long. Gives up workers of later ones that do not run, or cannot be killed.
  void tick();

  /// Prepares hosts, stops the group, or begins the next one, as far as that is possible now.
  void decide();

  void apply(const JobBegan& r);
  void apply(const FileTaken&) { edited_at_ = job_.now(); }
  void apply(const WorkerGone& r);
  void apply(const GroupStops& r);
  void apply(const GroupBegan& r);

  /// Every worker's process runs.
  [[nodiscard]] bool all_run() const;
  /// What a restart waits for; empty: none is wanted.
  [[nodiscard]] const std::string& pending_reason() const { return pending_reason_; }

 private:
  using Counts = std::map<Host, std::uint32_t>;

  void prepare_hosts();
  /// Stops the group if a restart is due.
  void stop_if_due();
  void stop_after_death(const Worker& dead);
  /// The next group begins after `delay` at the earliest.
  void stop(std::string why, std::uint32_t futile, Duration delay);
  /// Begins the next group once the present one has ended.
  void begin_if_due();
  void begin_group(const std::vector<Host>& next);
  /// No host may have a worker any more: ends the job.
  [[nodiscard]] bool ends_without_hosts();
  void give_up_unkillable();
  /// The next group begins without the worker's host, which is tried again as ever.
  void leave_out(WorkerId worker, const std::string& why);

  /// The group has lived for so long that a death in it is no futile try.
  [[nodiscard]] bool has_lived() const { return job_.steady() - began_at_ >= kGroupLives; }
  /// A member that has died; null: none.
  [[nodiscard]] const Worker* dead_member() const;
  /// A host of the group goes away: nothing is waited for.
  [[nodiscard]] bool a_host_leaves() const;
  [[nodiscard]] bool is_ready(const Host& host) const;
  /// A host that is wanted may still become ready soon.
  [[nodiscard]] bool awaits_hosts(Time since) const;
  /// The hosts of the next group in rank order, one for each worker. Hosts of the present group
  /// come first, in their order. `may_wait`: one of them that cannot be judged now stays as it is.
  [[nodiscard]] std::vector<Host> next_group(bool may_wait) const;
  [[nodiscard]] Counts present() const;
  [[nodiscard]] std::vector<WorkerId> alive() const;
  /// Fewer workers than that do not begin.
  [[nodiscard]] std::size_t least() const {
    return std::max<std::size_t>(1, job_.options.limits.least);
  }
  /// Sets the lines of host_worker_log by which the new group differs from what the log says.
  void add_lines(GroupBegan& r) const;

  JobContext& job_;
  HostTable& hosts_;
  ServerGroup& servers_;
  Workers& workers_;
  LostTime& lost_time_;
  std::map<WorkerId, Host> in_log_;  ///< Workers of the group that host_worker_log counts.
  std::uint32_t futile_ = 0;         ///< Restarts in a row.
  Time began_at_{};                  ///< The present group, by the steady clock.
  std::string why_;                  ///< Why it stops.
  // Not in the journal.
  std::set<Host> lost_;  ///< Until they are ready again.
  /// Workers of former groups that still run. Their hosts are left out meanwhile.
  std::map<WorkerId, Host> former_;
  Time edited_at_{};
  Time stopped_at_{};
  Time not_before_{};  ///< The next group begins no earlier.
  std::optional<Time> below_least_since_;
  std::string pending_reason_;
};

}  // namespace dt
