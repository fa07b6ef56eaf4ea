/// The job as one pure machine: events of the world in, effects and reasons out. It composes
/// membership (who is wanted), boundary (who has arrived) and liveness (who is alive), and it is
/// the only place where a commit is decided. No clock, no socket, no file.
///
///     job.cpp            begin, records and replay, small things
///     job_on_event.cpp   what each event changes, and what happens to workers
///     job_decide.cpp     decisions after every event: gaps, commits, releases, the end
///     job_deadlines.cpp  what time alone brings about
///
/// What the caller owes:
///  1. One thread. Every event goes through step(), with a time that never goes back.
///  2. Effects are carried out in their order. An Append is on disk before the next one begins.
///  3. Every Attach ends in AgentAttached or AttachFailed. Once attached, the caller keeps the link
///     up; AgentDetached tells a break, AgentAttached that it is back.
///  4. After AgentAttached the caller feeds what the report says of each process (started, store
///     opened, listening, acknowledged, arrived, ended) as ordinary events.
///  5. Every Prepare ends in PrepareEnded.
///  6. An attached agent that says nothing is told with AgentSilent, and AgentHeard when it does
///     again; the time counts only while the caller itself was there to hear it.
///  7. Tick comes about every 100 ms.
///  8. After End nothing more is asked; later events are ignored.
///
/// Durable state changes only in apply(record): live, when the record is appended, and at replay.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/job/context.h"
#include "core/job/events.h"
#include "core/job/hang.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/membership.h"
#include "core/job/notes.h"
#include "core/job/records.h"
#include "core/job/server_group.h"
#include "core/job/stalls.h"

namespace dt {

class Job {
 public:
  /// A new job (no records) or one to be taken up again.
  Job(JobOptions options, const std::vector<Record>& records, Instant now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The first effects of this supervisor's life. Call once.
  [[nodiscard]] std::vector<Effect> begin(Term term, Instant now);
  [[nodiscard]] std::vector<Effect> step(const JobEvent& event, Instant now);

  // What status shows.
  [[nodiscard]] const Membership& membership() const { return membership_; }
  [[nodiscard]] const Boundary& boundary() const { return job_.boundary; }
  [[nodiscard]] const Checkpoints& checkpoints() const { return saver_.checkpoints(); }
  /// Why the last checkpoint that was given up was; empty: none was since the last good one.
  [[nodiscard]] const std::string& checkpoint_trouble() const { return saver_.trouble(); }
  /// That no checkpoint can be saved, why, and what a loss means then; empty: one can, or nobody
  /// wants one.
  [[nodiscard]] std::string no_checkpoints() const {
    return saver_.no_checkpoints(servers_.hosts());
  }
  /// Of the servers lost last: why they were.
  [[nodiscard]] const std::string& servers_why() const { return servers_.why(); }
  [[nodiscard]] const std::map<Host, HostState>& hosts() const { return hosts_.all(); }
  [[nodiscard]] const std::map<ServerId, ServerState>& servers() const { return servers_.all(); }
  [[nodiscard]] const Stalls& stalls() const { return stalls_; }
  [[nodiscard]] const ServerWatch& server_watch() const { return servers_.watch(); }
  [[nodiscard]] const HangWatch& hang_watch() const { return hang_watch_; }
  /// Counts waits that have not ended, too, up to the last event.
  [[nodiscard]] Goodput goodput() const { return lost_time_.so_far(); }
  [[nodiscard]] std::uint64_t log_lines() const { return job_.log_lines; }
  /// Of earlier terms, in the order of their lines: one of them may have died before it told them.
  [[nodiscard]] const std::vector<PastChange>& past_changes() const { return past_changes_; }
  [[nodiscard]] bool opened() const { return job_.opened; }
  /// A member ended with exit code 0, and no other one has arrived at a boundary since.
  [[nodiscard]] bool finishing() const { return job_.finishing(); }
  [[nodiscard]] bool ending() const { return job_.ending.has_value(); }
  /// Whether a host shows life, by its agent's link alone.
  [[nodiscard]] Life life(const Host& host, Time now) const {
    return hosts_.liveness().life(host, std::nullopt, now);
  }
  /// One word: starting, running, finishing, ended.
  [[nodiscard]] std::string_view phase() const;
  /// What the next boundary waits for, or why nothing changes; empty if nothing is pending.
  [[nodiscard]] const std::string& pending_reason() const { return pending_reason_; }

 private:
  // Events.
  void on(const HostsAccepted& e);
  void on(const AgentAttached& e);
  void on(const AgentMoved& e);
  void on(const AgentDetached& e);
  void on(const AgentSilent& e);
  void on(const AgentHeard& e);
  void on(const AttachFailed& e);
  void on(const PrepareEnded& e);
  void on(const WorkerStarted& e);
  void on(const ProcessEnded& e);
  void on(const StoreOpened& e);
  void on(const WorkerArrived& e);
  void on(const ServerListening& e);
  void on(const CommitAcked& e);
  void on(const TrafficSeen& e);
  void on(const ServerDataSeen& e);
  void on(const WorkerProgress& e);
  void on(const ProcessInspected& e);
  void on(const ServerSaved& e);
  void on(const CheckpointSealed& e);
  void on(const CheckpointUnusable& e);
  void on(const PlacesAsked& e);
  void on(const CheckpointPlaceSeen& e);
  void on(const StopAsked& e);
  void on(const Tick& e);

  // Durable state.
  void replay(const Record& record);
  void apply(const Record& record);
  void apply_one(const JobBegan& r);
  void apply_one(const TermBegan& r);
  void apply_one(const FileTaken& r);
  void apply_one(const WorkerAllotted& r);
  void apply_one(const HostPrepared& r);
  void apply_one(const Committed& r);
  void apply_one(const EpochBegan& r);
  void apply_one(const WorkerGone& r);
  void apply_one(const AgentKnown& r);
  void apply_one(const AgentPlaced& r);
  void apply_one(const JobEnding& r);
  void apply_one(const CheckpointTaken& r);
  void apply_one(const RolledBack& r);
  void apply_one(const MemberLeft& r);
  void apply_one(const PlacesWanted& r);
  void apply_one(const CheckpointTimed& r);
  void apply_one(const TimeSpent& r);

  // Decisions, run after every event until nothing moves.
  void settle();
  /// Members that ended with exit code 0 have left, once another one has arrived at a boundary.
  void decide_exits();
  void fill_gaps();
  void stop_unwanted();
  void move_newcomers();
  void shrink_if_someone_died();
  void cross_boundary();
  /// The plan gives fewer members than there have to be: the boundary waits.
  bool waits_for_more(const Plan& plan, Epoch next);
  void check_least();
  void release();

  void let_hosts_go();
  void end_if_over();
  void check_deadlines();
  void check_lives();

  /// Ends the job if a base worker, or every one of them, does not come to its first boundary.
  void check_start();
  void check_boundary_timeout();
  /// Whom the others wait for at the boundary; without those who wait for another one themselves.
  [[nodiscard]] std::vector<WorkerId> late() const;
  void check_hangs();
  void watch_stall(WorkerId id, Stalls::Stall& stall);
  void stop_hung(WorkerId id);
  /// Where a worker last said it was, for people.
  [[nodiscard]] std::string last_position(WorkerId id) const;
  /// That of the host's places one stays empty, and what fills it.
  [[nodiscard]] std::string stays_empty(const Host& host) const;

  void new_view();
  /// Workers of earlier views are not kept.
  void forget_past();
  void say_again(WorkerId id);
  void never_heard_of(WorkerId id);
  /// Its process has ended, or counts as ended.
  void worker_ended(const ProcessEnded& e);
  void worker_gone(WorkerId id, ExitStatus status, const std::string& why);
  void host_failed(const Host& host, std::string check, const std::string& why);
  [[nodiscard]] bool a_newcomer_runs() const;
  /// `is_unreachable`: nothing can be started there either.
  void processes_lost(const Host& host, const std::string& why, bool is_unreachable);
  /// Begins an epoch with the planned changes, if there are any, in one record.
  void commit(Epoch epoch, const Plan& plan);

  void epoch_begins(Epoch epoch);
  [[nodiscard]] bool anyone_runs() const;
  /// Somebody trains who could report data from a server.
  [[nodiscard]] bool hears_a_contributor() const;
  /// A base worker or server of this host was not started yet.
  [[nodiscard]] bool start_waits_for(const Host& host) const;
  /// Of the workers that keep others waiting one is on this host, and none has more than its data
  /// connections to show for being alive.
  [[nodiscard]] bool boundary_waits_for_unsupervised(const Host& host) const;
  [[nodiscard]] std::uint32_t restart_budget(const Host& host) const;
  [[nodiscard]] std::uint32_t futile_limit() const;
  void end_if_futile();

  JobContext job_;
  LostTime lost_time_{job_};
  HostTable hosts_{job_};
  CheckpointSaver saver_{job_};
  ServerGroup servers_{job_, hosts_, lost_time_, saver_};
  Membership membership_;
  HangWatch hang_watch_;
  Stalls stalls_;
  std::vector<PastChange> past_changes_;
  std::optional<Time> start_counts_from_;  ///< The servers did not listen yet.
  int worker_code_ = 0;                    ///< Of the first member of the present view that failed.
  std::string worker_why_;
  int death_code_ = 0;                 ///< Of the first death, in case nobody can be started again.
  std::optional<Time> waiting_since_;  ///< Somebody waits at the boundary for somebody.

  std::set<WorkerId> leave_enforced_;
  std::string pending_reason_;
};

}  // namespace dt
