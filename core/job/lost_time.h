/// Counts the time that members lose, by cause: "boundary" (waiting for slower ones), "join",
/// "leave", "death", "server", "server recovery", "supervisor", "below-min-workers", "restart",
/// "standstill", "hang". The other machines report what happens; nothing is decided here. Pure.
///
/// A member waits from its arrival at a boundary until its release; after a death until the servers
/// know the smaller contributor set; after the loss of a server until all have returned. A group
/// that restarts stands from the stop, or the death before it, until all processes of the next one
/// run: what these need to begin, and the steps that they repeat, are not seen.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/job/context.h"
#include "core/job/goodput.h"

namespace dt {

class LostTime {
 public:
  explicit LostTime(JobContext& job) : job_(job) {}

  /// Members that stand still for less may be in a slow step: nothing is lost.
  static constexpr Duration kLeastStanding = std::chrono::seconds(3);

  /// A term begins; `is_resumed`: it continues the job of an earlier one.
  void begin(bool is_resumed);
  void apply(const TimeSpent& r);

  /// Adds the members' time up to now, and journals the sums when that is due.
  void tick();
  /// At this tick, the member has stood still since then for that cause.
  void stands(WorkerId worker, const char* cause, Time since);
  /// At this tick, a server has been silent since then.
  void server_silent(Time since);

  // At a boundary.
  /// A member has arrived; false if it had before.
  bool arrived(WorkerId worker) { return arrived_.try_emplace(worker, job_.now()).second; }
  /// A worker's process has ended.
  void gone(WorkerId worker);
  /// Every contributor has arrived; `cause`: what the commit brings besides an epoch.
  void boundary_complete(std::string cause);
  /// `worker` is released from the boundary.
  void released(WorkerId worker);
  /// The job ends at a boundary that waited for the least number of members.
  void end_at_boundary();

  // Deaths.
  /// Members could not go on since then, because a member died.
  void member_died(Time since);
  /// A commit removes the dead from the contributors.
  void shrunk(bool nobody_left);
  /// A death that not all servers know of keeps members waiting.
  [[nodiscard]] bool has_open_death() const { return death_.has_value(); }
  /// All servers know it: the others continue.
  void death_is_known();

  // Lost servers.
  /// The job goes back to a checkpoint: from now on all members wait for the servers.
  void recovery_begins();
  /// All contributors have returned to the boundary.
  void recovery_is_complete();
  /// The epoch has begun again, `from` the interrupted one; notes it, if it was not yet.
  void epoch_began_again(const std::string& why, std::optional<Epoch> from);

  // Workers that restart as a group.
  /// The group is being stopped.
  void group_stops();
  /// The next group is to begin; the present members are still those of the former one.
  void group_begins() { lose_standing(); }
  /// Until group_runs(), no member does anything.
  [[nodiscard]] bool group_stands() const { return !group_has_run_ || stands_since_.has_value(); }
  /// All processes of the group run.
  void group_runs();

  /// Notes the time lost since the last note, if it is long enough.
  void report();
  /// The sums, with the waits that have not ended, up to the last event.
  [[nodiscard]] Goodput so_far() const;

 private:
  void lose(const std::string& cause, Duration time);
  /// Members waited between these times: for more members, or for `cause` before that.
  void lose_waiting(const std::string& cause, Time from, Time until);
  void lose_waiting(const std::string& cause, Time from) { lose_waiting(cause, from, job_.now()); }
  void end_death(Time until);
  /// What a worker that waits for the servers to know a death has lost by it.
  void lose_death(WorkerId stopped, Time until);
  void end_nobody();
  void lose_recovery();
  void lose_standing();
  void pass() { sums_.pass(has_begun() ? members() : 0, job_.now()); }
  /// The first epoch, or in a job without epochs the first group, has begun.
  [[nodiscard]] bool has_begun() const { return !job_.initial() || group_has_run_; }
  [[nodiscard]] bool is_recovering() const { return recovering_since_.has_value(); }
  /// The contributors, but at least one: an empty job loses the time of one worker.
  [[nodiscard]] std::size_t members() const;

  /// A death that not all servers know: since when, and whose rounds it stops.
  struct Death {
    Time since;
    std::vector<WorkerId> stopped;
  };

  JobContext& job_;
  Goodput sums_;
  std::map<std::string, Duration> unreported_;
  Duration noted_total_{};  ///< The members' time at the last note.
  std::optional<Time> saved_at_;
  std::map<WorkerId, Time> arrived_;
  std::map<WorkerId, Time> stood_until_;  ///< By stands(), counted up to then.
  std::optional<Time> complete_at_;       ///< The last member arrived.
  std::string boundary_cause_;            ///< Why members wait between then and their release.
  std::optional<Time> released_at_;       ///< The last release of any worker.
  std::optional<Time> resumed_at_;        ///< This term's begin, if it is not the first.
  std::optional<Time> dead_since_;        ///< A death that is not committed yet.
  std::optional<Death> death_;
  std::optional<Time> death_counted_until_;  ///< For a worker that has gone.
  std::optional<Time> nobody_since_;
  std::optional<Time> recovering_since_;  ///< Servers were lost, and not all members have returned.
  std::optional<Time> lost_servers_at_;   ///< Until the epoch has begun again.
  std::optional<Time> silence_counted_until_;
  bool group_has_run_ = false;
  Time group_runs_since_{};  ///< In this term; all processes of the present group run since then.
  std::optional<Time> stands_since_;  ///< The group is stopped, or does not run yet.
};

}  // namespace dt
