/// The job's workers: the life of each one, and what its end means for its host and for the job.
/// Newcomers are started by core/job/newcomers.h, views are decided by core/job/views.h. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/id.h"
#include "core/files/hosts.h"
#include "core/job/context.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/membership.h"
#include "core/job/server_group.h"

namespace dt {

class Workers {
 public:
  Workers(JobContext& job, HostTable& hosts, ServerGroup& servers, LostTime& lost_time)
      : job_(job),
        hosts_(hosts),
        servers_(servers),
        lost_time_(lost_time),
        membership_(job.options.limits, &job.agenda) {}

  /// After the replay: workers of hosts with an agent may run.
  void replayed();

  // Events.
  void file_accepted(const HostsAccepted& e);
  void places_asked(const PlacesAsked& e);
  void replace_asked(const ReplaceAsked& e);
  /// An agent is attached, with these processes.
  void attached(const Host& host, const std::vector<ProcessReport>& there);
  void started(WorkerId worker);
  void store_opened(WorkerId worker);
  /// True: a member has arrived at the boundary, and had not before.
  [[nodiscard]] bool arrived(const FromWorker<Arrive>& e);
  /// A server sees it contribute, before the first boundary.
  void busy(WorkerId worker);
  void ended(const ProcessEnded& e);
  /// It counts as ended, whether or not its process has.
  void fence(WorkerId worker, std::string why);
  /// A host could not be reached or prepared, or a worker did not start there.
  void host_failed(const Host& host, std::string check, const std::string& why,
                   bool is_final = false);
  /// The processes of a host are lost.
  void host_lost(const Host& host, const std::string& why);
  /// All servers listen: sends their addresses to every worker.
  void servers_listen();
  /// Ends the job if a base worker, or every one of them, does not come to its first boundary.
  void check_start();
  /// Stops newcomers that do not become ready and leavers that do not leave.
  void check_timeouts();

  /// Members that ended with exit code 0 have left, once another one has arrived at a boundary.
  void decide_exits();

  // For the other machines.
  /// Applies an event to a worker's life; false if it means nothing in its state.
  bool advance(WorkerId worker, WorkerEvent event) {
    return membership_.advance(worker, event, job_.now());
  }
  /// Journals the worker's end. `is_told`: another note tells people.
  void gone(WorkerId worker, ExitStatus status, const std::string& why, bool is_told = false);
  /// The worker gets TERM, and KILL after `grace`: its host goes away. Its end is no failure.
  void send_away(WorkerId worker, Duration grace);
  [[nodiscard]] bool is_sent_away(WorkerId worker) const { return sent_away_.contains(worker); }
  void set_leaving(const Host& host, bool leaves) { membership_.set_leaving(host, leaves); }
  void departed(const Host& host) { membership_.departed(host); }
  /// The worker has had its first release as a member.
  void greeted(WorkerId worker) { membership_.find(worker)->greeted = true; }

  void apply(const JobBegan& r);
  void apply(const FileTaken& r);
  void apply(const WorkerAllotted& r);
  void apply(const Committed& r);
  void apply(const EpochBegan& r);
  void apply(const WorkerGone& r);
  void apply(const MemberLeft& r);
  void apply(const PlacesWanted& r);
  void apply(const BaseReplaced& r);
  void apply(const RolledBack& r);
  void apply(const GroupBegan& r);

  /// The first member of the present view that failed.
  struct Failure {
    int code = 0;  ///< 0: none has.
    std::string why;
  };
  [[nodiscard]] const Failure& failure() const { return failure_; }
  /// The exit code of the first death in the job; 0: none.
  [[nodiscard]] int first_death() const { return first_death_; }
  [[nodiscard]] const Membership& membership() const { return membership_; }
  [[nodiscard]] const Worker* find(WorkerId worker) const { return membership_.find(worker); }
  [[nodiscard]] bool anyone_leaves() const {
    return membership_.count(WorkerState::kLeaving) + membership_.count(WorkerState::kStopping) > 0;
  }
  /// When the last of all changed its state.
  [[nodiscard]] Time last_change() const;
  /// A contributor's host is heard.
  [[nodiscard]] bool hears_a_contributor() const;
  /// Deaths on this host that are made good.
  [[nodiscard]] std::uint32_t restart_budget(const Host& host) const;
  /// Futile tries after which the job ends.
  [[nodiscard]] std::uint32_t futile_limit() const;

 private:
  /// Ends a job whose workers are restarted as a group and yet use a kvstore.
  [[nodiscard]] bool refuses_store(const Worker& w);
  /// Workers of earlier views are not kept.
  void forget_past();
  void joined(Worker& w, Epoch epoch);
  [[nodiscard]] bool member_arrived(Worker& w, const Arrive& m);
  /// Its agent has it; `runs`: the command was executed.
  void confirmed(WorkerId worker, bool runs);
  /// Its agent does not know it.
  void unknown_to_agent(WorkerId worker);
  /// Its process has ended, or counts as ended.
  void process_ended(const ProcessEnded& e);
  [[nodiscard]] std::vector<WorkerId> live_on(const Host& host) const;
  /// A base worker or server of this host was not started yet.
  [[nodiscard]] bool start_waits_for(const Host& host) const;
  /// Its host goes away, and its end, for that or another reason, is no failure.
  [[nodiscard]] bool leaves_with_host(const Worker& worker) const;
  /// That a place of the host stays empty, and what fills it.
  [[nodiscard]] std::string stays_empty(const Host& host) const;

  JobContext& job_;
  HostTable& hosts_;
  ServerGroup& servers_;
  LostTime& lost_time_;
  Membership membership_;
  Failure failure_;
  int first_death_ = 0;
  std::set<WorkerId> leave_enforced_;
  std::set<WorkerId> sent_away_;
  std::optional<Time> start_counts_from_;  ///< The last time at which not all servers listened.
};

}  // namespace dt
