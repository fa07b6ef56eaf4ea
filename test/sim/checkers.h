/// The invariants of every run, with ARCHITECTURE.md's numbers. The checkers do not know the job
/// machine's internals: they see only its effects on the world, that is processes, messages, the
/// journal's bytes on disk and the lines of host_worker_log. The first violation is kept.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/job/events.h"
#include "core/job/options.h"
#include "core/job/records.h"
#include "core/protocol/control_messages.h"

namespace dt::sim {

class Checkers {
 public:
  Checkers(std::vector<Host> base, std::size_t servers)
      : base_(std::move(base)), servers_(servers) {
    for (const Host& h : base_) ++base_count_[h];
  }

  [[nodiscard]] const std::optional<std::string>& failure() const { return failure_; }
  void fail(std::string what) {
    if (!failure_) failure_ = std::move(what);
  }

  /// A complete record is on the disk.
  void on_record(const Record& record, Instant now);
  /// The job releases a worker.
  void on_release_sent(WorkerId worker, const Release& release, Instant now);
  /// A process was really created on a host.
  void on_process(ProcessId process);
  void on_process_end(ProcessId process, ExitStatus status);
  /// The worker's slot, when it is started and whenever a supervisor has read the journal.
  void on_slot(WorkerId worker, std::uint32_t slot);
  /// A worker got this release, in any order and any number of times.
  void on_release(WorkerId worker, const Release& release);
  /// A server got this commit.
  void on_server_commit(ServerId server, const ServerCommit& commit);
  /// A server has written its part of a checkpoint, or reports why not.
  void on_saved(ServerId server, const Saved& saved) { saved_[saved.generation][server] = saved; }
  /// A server reported that it cannot begin with its checkpoint.
  void on_unusable(ServerId server);
  /// A checkpoint was sealed on the volume.
  void on_sealed(Epoch epoch, Generation generation);
  /// A newcomer on this host failed or could not be reached: a swap may continue without it.
  void on_trouble(const Host& host) { troubled_.insert(host); }
  void on_trouble() { swap_.reset(); }
  /// From now on a group may begin without this host.
  void on_doubt(const Host& host) { doubtful_.insert(host); }
  /// A supervisor can only estimate when hosts go away: notices by it may come late.
  void on_estimate() {
    for (auto& [host, deadline_ns] : leaving_) deadline_ns = kNoDeadline;
  }
  /// A host could not be reached or prepared.
  void on_failed_try() { tries_ += contributors_.empty(); }
  /// The job stops this worker.
  void on_stop(WorkerId worker) {
    if (contributors_.empty() && gone_.count(worker) == 0) stopped_tries_.insert(worker);
  }
  /// This worker does not end by KILL for a while.
  void on_unkillable(WorkerId worker) { unkillable_.insert(worker); }
  void on_hang(WorkerId worker) { hung_.insert(worker); }
  /// `all_wait`: every contributor is alive, reachable and waits at the boundary, nothing is wrong
  /// with any server. `hang`: rounds wait for these, which hang, and nothing else is wrong.
  /// Neither may last.
  void on_tick(Instant now, bool all_wait, const std::set<WorkerId>& hang);
  /// `hang`: the current servers that hang on a reachable host. That may not last either.
  /// `stands`: all contributors wait for each other; `shows`: and nothing hides it from the
  /// supervisor. Then it is told within half of --hang-timeout, and the job ends within all of it;
  /// otherwise neither.
  void on_standstill(Time now, bool stands, bool shows);
  void on_told_standstill(Time now);
  /// `are_left`: all workers have ended, opaque servers have not, and nothing else is wrong.
  void on_servers_are_left(Time now, bool are_left);
  /// The job starts a server.
  void on_server_start();
  void on_servers_hang(Time now, const std::set<ServerId>& hang);
  void on_log_file(const std::string& text, bool whole);
  /// The notes in events.jsonl of the changes that host_worker_log has.
  void on_events(const std::vector<Note>& told, bool whole);
  void on_end(std::int32_t exit_code, const std::string& message);

  /// Generation of the rollback that started the current servers; 0 without a rollback.
  [[nodiscard]] Generation servers_since() const { return rolled_back_; }
  /// Whether the current epoch began again because no member was left.
  [[nodiscard]] bool starts_again() const { return starts_again_; }
  [[nodiscard]] const std::vector<WorkerId>& contributors() const { return contributors_; }
  /// Exit codes of ends that the faults explain and not the workers.
  std::set<std::int32_t> excused_codes;
  std::uint32_t futile_restarts = 0;  ///< --max-futile-restarts; 0: not set.
  std::size_t keep_checkpoints = 0;   ///< --keep-checkpoints
  bool rolls_back = false;
  bool is_adopted = false;
  bool has_opaque_servers = false;
  Duration stop_grace{};
  bool has_most = false;     ///< --max-workers is given: not all that host_worker names are wanted.
  Duration notice_margin{};  ///< --notice-margin
  std::optional<Host> master;        ///< The supervisor's host, if it has a part in the job.
  std::optional<Epoch> first_epoch;  ///< Epoch of the checkpoint that the job began with.
  /// Workers restart as a group; the job's options.
  std::optional<JobOptions> group;

 private:
  struct Swap {
    Time taken;
    std::map<Host, std::uint32_t> before;  ///< Members at the edit.
    std::map<Host, std::uint32_t> grown;   ///< Wanted counts of hosts that gain.
    std::map<Host, std::uint32_t> shrunk;  ///< Wanted counts of hosts that lose.
  };
  struct Told {
    Rank rank;
    std::uint32_t size = 0;
  };

  void check_one(const JobBegan& r, Time now);
  void check_one(const FileTaken& r, Time now);
  void check_one(const WorkerAllotted& r, Time now);
  void check_one(const Committed& r, Time now);
  void check_one(const WorkerGone& r, Time now);
  void check_one(const EpochBegan& r, Time now);
  void check_one(const TermBegan& r, Time now);
  void check_one(const HostPrepared&, Time) {}
  void check_one(const AgentKnown& r, Time) {
    if (r.host == base_.front()) knows_ports_ = r.incarnation != 0;
  }
  void check_one(const AgentPlaced&, Time) {}
  void check_one(const JobEnding& r, Time now) {
    if (r.exit_code == 74) on_told_standstill(now);
  }
  void check_one(const CheckpointTaken& r, Time now);
  void check_one(const RolledBack& r, Time now);
  void check_one(const MemberLeft& r, Time now);
  void check_one(const PlacesWanted&, Time) {}
  void check_one(const BaseReplaced& r, Time now);
  void check_one(const CheckpointTimed& r, Time now);
  void check_one(const TimeSpent&, Time) {}
  void check_one(const Snapshot&, Time) {}
  void check_one(const NoticeTaken& r, Time now);
  void check_one(const NoticeOver& r, Time now);
  void check_one(const GroupStops& r, Time now);
  void check_one(const GroupBegan& r, Time now);
  void check_group_gone(const WorkerGone& r, Time now);
  /// One restart is to do for an agent that dies on a host that answers.
  void check_nobody_is_left_out(const GroupBegan& r, Time now);
  void check_group_end(std::int32_t exit_code);
  void epoch_begins(Epoch epoch);
  void check_view(const Committed& r, Time now);
  void check_swap(const Committed& r, Time now);
  /// Heirs with enough members, or all of them, have their base workers.
  void bases_move(const std::vector<WorkerId>& members, bool all);
  [[nodiscard]] std::map<Host, std::uint32_t> wanted_now() const;
  [[nodiscard]] std::map<Host, std::uint32_t> members_per_host() const;

  std::vector<Host> base_;
  std::map<Host, std::uint32_t> base_count_;
  std::map<Host, Host> heirs_;  ///< Who is to have a base host's workers.
  std::vector<HostSlots> file_;
  std::size_t servers_;
  std::optional<std::string> failure_;

  std::map<WorkerId, Host> host_;
  std::map<WorkerId, std::uint32_t> slots_;
  std::map<Host, std::uint32_t> wanted_;
  std::vector<WorkerId> members_;
  std::vector<WorkerId> contributors_;
  std::map<Generation, std::vector<WorkerId>> sets_;
  std::map<Generation, std::vector<WorkerId>> views_;  ///< Member lists by generation.
  Generation generation_;
  Term term_;
  std::optional<Epoch> epoch_;
  std::optional<Swap> swap_;
  std::set<Host> troubled_;

  std::set<WorkerId> added_;  ///< Newcomers that a commit made members.
  std::set<WorkerId> leavers_;
  std::set<WorkerId> gone_;
  std::vector<std::pair<bool, Host>> due_;  ///< Lines that must be in the log, in order.

  std::set<ProcessId> created_;
  std::map<WorkerId, ExitStatus> ends_;
  // Where servers are opaque.
  bool knows_ports_ = false;  ///< The first host's agent keeps them.
  std::optional<Time> servers_left_since_;
  /// Cleared by a rollback, which repeats epochs.
  std::map<std::pair<WorkerId, Epoch>, Told> told_;
  std::map<std::pair<Generation, Rank>, WorkerId> ranks_;
  std::map<ServerId, std::pair<Term, Generation>> adopted_;
  std::map<Generation, std::map<ServerId, Saved>> saved_;
  std::map<Generation, Epoch> sealed_;
  std::map<Generation, Epoch> asked_;  ///< Commits that save.
  std::vector<Epoch> checkpoints_;     ///< The sealed ones, oldest first.
  /// The checkpoint with which a rollback's servers began; nullopt: the job's first one.
  std::map<ServerId, std::optional<Epoch>> origins_;
  std::set<std::optional<Epoch>>
      unusable_;  ///< Checkpoints that a server reported, until they are sealed again.
  std::set<std::optional<Epoch>> ever_unusable_;
  Generation rolled_back_;
  std::optional<Epoch> returns_to_;  ///< The epoch rolled back to, until it begins again.
  ServerId next_server_;
  std::optional<Epoch> furthest_;
  std::uint32_t rollbacks_ = 0;  ///< Since an epoch began for the first time.
  bool starts_again_ = false;
  std::set<WorkerId> exited_;  ///< Members with exit code 0 that have not left yet.
  std::optional<Time> waiting_since_;
  std::map<WorkerId, Time> hanging_since_;
  std::map<ServerId, Time> server_hangs_since_;
  std::optional<Time> standstill_since_;  ///< It shows since then.
  std::optional<Time> last_stood_;
  bool is_standstill_told_ = false;
  std::set<WorkerId> hung_;
  std::uint32_t deaths_ = 0;    ///< Deaths of members since an epoch was completed.
  std::uint32_t tries_ = 0;     ///< Starts that failed while no member was alive, since then.
  std::uint32_t unwanted_ = 0;  ///< Those of them that were stopped or not wanted any more.
  /// Hosts that go away, and when, by the wall clock. Nullopt: all of them.
  std::map<std::optional<Host>, std::int64_t> leaving_;
  std::set<std::optional<Host>> estimated_;  ///< Whose deadline the present term has computed.
  std::set<WorkerId> left_with_host_;
  std::set<Host> noticed_;  ///< Hosts of which a notice was given at any time.
  // Where workers restart as a group.
  std::set<WorkerId> unkillable_;
  std::set<WorkerId> lost_;               ///< Gone, though their processes may live.
  std::map<Host, std::uint32_t> logged_;  ///< Workers by host_worker_log.
  bool stops_ = false;
  bool has_died_ = false;  ///< A worker of the present group.
  Time group_began_{};
  Time group_stopped_{};
  std::set<Host> doubtful_;
  std::map<Host, std::uint32_t> deaths_on_;
  std::uint32_t early_deaths_ = 0;    ///< In a row.
  std::set<WorkerId> stopped_tries_;  ///< Workers that were stopped and have not ended yet.
};

}  // namespace dt::sim
