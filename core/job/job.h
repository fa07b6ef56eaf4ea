/// The job as one pure machine: events of the world in, effects and reasons out. It composes
/// membership (who is wanted), boundary (who has arrived) and liveness (who is alive), and it is
/// the only place where a commit is decided. No clock, no socket, no file.
///
///     job.cpp            begin, records and replay, small things
///     job_on_event.cpp   what each event changes, and what happens to workers
///     job_decide.cpp     decisions after every event: gaps, commits, releases, the end
///     job_rollback.cpp   servers lost: back to a checkpoint with new ones
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

#include "core/job/checkpoints.h"
#include "core/job/context.h"
#include "core/job/events.h"
#include "core/job/futile_tries.h"
#include "core/job/hang.h"
#include "core/job/host_table.h"
#include "core/job/lost_time.h"
#include "core/job/membership.h"
#include "core/job/notes.h"
#include "core/job/records.h"
#include "core/job/server_watch.h"
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
  struct ServerState {
    Host host;
    std::uint32_t index = 0;  ///< Among the servers.
    bool started = false;
    bool ended = false;   ///< Opaque ones only: it ended well.
    std::string address;  ///< Empty until it listens.
    std::uint16_t port = 0;
    std::uint32_t attempts = 0;  ///< Failed tries to reach its host.
  };
  [[nodiscard]] const Membership& membership() const { return membership_; }
  [[nodiscard]] const Boundary& boundary() const { return job_.boundary; }
  [[nodiscard]] const Checkpoints& checkpoints() const { return checkpoints_; }
  /// Why the last checkpoint that was given up was; empty: none was since the last good one.
  [[nodiscard]] const std::string& checkpoint_trouble() const { return checkpoint_trouble_; }
  /// That no checkpoint can be saved, why, and what a loss means then; empty: one can, or nobody
  /// wants one.
  [[nodiscard]] std::string no_checkpoints() const;
  /// Of the servers lost last: why they were.
  [[nodiscard]] const std::string& servers_why() const { return servers_why_; }
  [[nodiscard]] const std::map<Host, HostState>& hosts() const { return hosts_.all(); }
  [[nodiscard]] const std::map<ServerId, ServerState>& servers() const { return servers_; }
  [[nodiscard]] const Stalls& stalls() const { return stalls_; }
  [[nodiscard]] const ServerWatch& server_watch() const { return server_watch_; }
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
  void
  reach_first_host();  ///< That of rank 0, whose ports all base workers have in their environment.
  void shrink_if_someone_died();
  void cross_boundary();
  /// The plan gives fewer members than there have to be: the boundary waits.
  bool waits_for_more(const Plan& plan, Epoch next);
  void check_least();
  void release();

  // Lost servers (job_rollback.cpp).
  struct Loss {
    std::string why;
    int code = 0;               ///< Of the job's end, where it cannot go back.
    std::optional<Host> avoid;  ///< No server can be there.
    /// What the servers were to begin with cannot be read: it takes an older one.
    bool is_checkpoint = false;
  };
  /// What new servers begin with.
  struct Origin {
    Epoch epoch;
    bool is_inherited = false;  ///< It is the checkpoint that the job began with.
  };
  /// The job goes back to its newest checkpoint, or ends where it cannot.
  void servers_lost(const Loss& loss);
  void roll_back(const Loss& loss, const Origin& origin);
  [[nodiscard]] std::optional<Origin> checkpoint_to_use(const Loss& loss) const;
  /// The hosts of new servers, in order; nothing: no living one is left for `lost`.
  [[nodiscard]] std::optional<std::vector<Host>> hosts_for_servers(
      const std::optional<Host>& lost) const;
  void start_server(ServerId id);
  /// Opaque servers of hosts that were attached before rank 0's host was.
  void start_opaque_servers();
  /// One of them has ended: the job goes on without it if it ended well.
  void opaque_server_ended(ServerId id, const ProcessEnded& e);
  /// Whether one may still run: it gets time to end after the workers.
  [[nodiscard]] bool awaits_opaque_servers() const;
  /// Those of `host` that were not started have to be tried again later, or elsewhere.
  void server_start_failed(const Host& host, const std::string& why);
  void reach_server_hosts();
  /// Servers of an earlier time are to end, and their hosts to forget them.
  void stop_retired(const Host& host, const std::vector<ProcessReport>& there);

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
  void check_servers();
  /// How long this host may be silent while it has a server; nothing: as long as workers get data
  /// from its servers.
  [[nodiscard]] std::optional<Duration> patience_with_server_host(const Host& host) const;
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
  void tell_commit(ServerId id);
  /// Whether the boundary before this epoch saves a checkpoint.
  bool saves_at(Epoch epoch);
  void give_checkpoint_up(const std::string& why);

  void epoch_begins(Epoch epoch);
  [[nodiscard]] bool servers_listen() const;
  [[nodiscard]] std::vector<ServerId> server_ids() const;
  [[nodiscard]] Servers server_list() const;
  [[nodiscard]] bool anyone_runs() const;
  /// No server's host is reachable.
  [[nodiscard]] bool servers_unseen() const;
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
  Membership membership_;
  HangWatch hang_watch_;
  Stalls stalls_;
  ServerWatch server_watch_;
  Checkpoints checkpoints_;
  std::optional<Generation> epoch_saves_;  ///< The commit of the present epoch that saved.
  std::string checkpoint_trouble_;
  std::map<ServerId, ServerState> servers_;
  bool is_resumed_ = false;           ///< This is not the first term.
  std::map<ServerId, Host> retired_;  ///< Replaced; their end was not told yet.
  std::vector<Host> server_homes_;    ///< Of the first servers.
  ServerId next_server_;
  Generation servers_since_;            ///< The rollback that brought them; 0: none.
  Epoch servers_epoch_;                 ///< What they began with, after a rollback.
  bool servers_inherit_ = true;         ///< From the checkpoint that the job began with, if any.
  std::uint32_t futile_rollbacks_ = 0;  ///< Since an epoch began that never had.
  std::string servers_why_;             ///< Of the last rollback.
  std::optional<Epoch> furthest_;
  std::optional<Epoch> interrupted_;  ///< The epoch that was rolled back from.
  Term term_;
  std::vector<PastChange> past_changes_;
  std::optional<Time> start_counts_from_;  ///< The servers did not listen yet.
  int worker_code_ = 0;                    ///< Of the first member of the present view that failed.
  std::string worker_why_;
  FutileTries futile_;
  int death_code_ = 0;                 ///< Of the first death, in case nobody can be started again.
  std::optional<Time> waiting_since_;  ///< Somebody waits at the boundary for somebody.

  std::set<WorkerId> leave_enforced_;
  std::string pending_reason_;
};

}  // namespace dt
