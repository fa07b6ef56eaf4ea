/// The job as one pure machine: events in, effects and reasons out. No clock, no socket, no file.
/// It gives each event to the machine that owns its subject, then lets all of them decide in one
/// fixed order:
///
///     HostTable    links to agents, retries            ServerGroup  servers, checkpoints, rollback
///     HostWatch    when a silent host is lost          Workers      lives and deaths of workers
///     Newcomers    starts missing workers              Stragglers   workers that others wait for
///     Views        boundaries, commits, releases       LostTime     how long members wait
///
/// Each knows only those before it in Job's list of members; JobContext is what they share.
///
/// What the caller owes:
///  1. One thread. Every event goes through step(), with a time that never goes back.
///  2. Effects are carried out in their order. An Append is on disk before the next one begins.
///  3. Every Attach ends in AgentAttached or AttachFailed. Once attached, the caller keeps the link
///     up; AgentDetached reports a break, AgentAttached that it is back.
///  4. After AgentAttached the caller feeds the reported state of each process (started, store
///     opened, listening, acknowledged, arrived, ended) as ordinary events.
///  5. Every Prepare ends in PrepareEnded.
///  6. AgentSilent reports an attached agent that sends nothing, and AgentHeard its next message.
///     Silence counts only while the caller itself was running.
///  7. Tick comes about every 100 ms.
///  8. No effect follows an End; later events are ignored.
///
/// Durable state changes only in apply(record): live, when the record is appended, and at replay.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/job/context.h"
#include "core/job/events.h"
#include "core/job/host_table.h"
#include "core/job/host_watch.h"
#include "core/job/lost_time.h"
#include "core/job/newcomers.h"
#include "core/job/notes.h"
#include "core/job/records.h"
#include "core/job/server_group.h"
#include "core/job/stragglers.h"
#include "core/job/views.h"
#include "core/job/workers.h"

namespace dt {

class Job {
 public:
  /// A new job (no records) or one to be resumed.
  Job(JobOptions options, const std::vector<Record>& records, Instant now);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The first effects of this term. Call once.
  [[nodiscard]] std::vector<Effect> begin(Term term, Instant now);
  [[nodiscard]] std::vector<Effect> step(const JobEvent& event, Instant now);

  // What status shows.
  [[nodiscard]] const std::map<Host, HostState>& hosts() const { return hosts_.all(); }
  /// Whether a host shows life, by its agent's link alone.
  [[nodiscard]] Life life(const Host& host, Time now) const {
    return hosts_.liveness().life(host, std::nullopt, now);
  }
  [[nodiscard]] const ServerGroup& server_group() const { return servers_; }
  [[nodiscard]] const std::map<ServerId, ServerState>& servers() const { return servers_.all(); }
  [[nodiscard]] const Checkpoints& checkpoints() const { return servers_.saver().checkpoints(); }
  [[nodiscard]] const Membership& membership() const { return workers_.membership(); }
  [[nodiscard]] const Stragglers& stragglers() const { return stragglers_; }
  [[nodiscard]] const Boundary& boundary() const { return job_.boundary; }
  /// What the next boundary waits for, or why nothing changes; empty if nothing is pending.
  [[nodiscard]] const std::string& pending_reason() const { return views_.pending_reason(); }
  /// Up to the last event, with waits that have not ended.
  [[nodiscard]] Goodput goodput() const { return lost_time_.so_far(); }
  [[nodiscard]] std::uint64_t log_lines() const { return job_.log_lines; }
  /// Changes of earlier terms, in the order of their lines: a supervisor may have died before it
  /// wrote the note of one.
  [[nodiscard]] const std::vector<PastChange>& past_changes() const { return past_changes_; }
  [[nodiscard]] bool opened() const { return job_.opened; }
  [[nodiscard]] bool finishing() const { return job_.finishing(); }
  [[nodiscard]] bool ending() const { return job_.ending.has_value(); }
  /// One word: starting, running, finishing, ended.
  [[nodiscard]] std::string_view phase() const;

 private:
  void on(const HostsAccepted& e) { workers_.file_accepted(e); }
  void on(const AgentAttached& e);
  void on(const AgentMoved& e) { hosts_.moved(e); }
  void on(const AgentDetached& e);
  void on(const AgentSilent& e) { hosts_.silent(e); }
  void on(const AgentHeard& e) { hosts_.heard(e); }
  void on(const AttachFailed& e);
  void on(const PrepareEnded& e);
  void on(const WorkerStarted& e) { workers_.started(e.worker); }
  void on(const ProcessEnded& e);
  void on(const StoreOpened& e) { workers_.store_opened(e.worker); }
  void on(const WorkerArrived& e);
  void on(const ServerListening& e);
  void on(const CommitAcked& e) { servers_.acked(e); }
  void on(const TrafficSeen& e);
  void on(const ServerDataSeen& e);
  void on(const WorkerProgress& e) { stragglers_.progress(e); }
  void on(const ProcessInspected& e);
  void on(const ServerSaved& e) { servers_.saved(e); }
  void on(const CheckpointSealed& e) { servers_.checkpoint_sealed(e); }
  void on(const CheckpointUnusable& e) { servers_.checkpoint_unusable(e); }
  void on(const CheckpointPlaceSeen& e) { servers_.place_seen(e); }
  void on(const PlacesAsked& e) { workers_.places_asked(e); }
  void on(const StopAsked& e) { job_.end(e.exit_code, e.why); }
  void on(const Tick& e);

  void replay(const Record& record);
  void apply(const Record& record);

  /// Decides after an event, until nothing moves.
  void settle();
  /// `is_unreachable`: nothing can be started there either.
  void processes_lost(const Host& host, const std::string& why, bool is_unreachable);
  void host_lost(const HostWatch::Lost& lost);
  void let_hosts_go();
  void end_if_futile();
  void end_if_over();

  JobContext job_;
  LostTime lost_time_{job_};
  HostTable hosts_{job_};
  ServerGroup servers_{job_, hosts_, lost_time_};
  Workers workers_{job_, hosts_, servers_, lost_time_};
  HostWatch host_watch_{job_, hosts_, servers_, workers_};
  Newcomers newcomers_{job_, hosts_, servers_, workers_};
  Stragglers stragglers_{job_, hosts_, servers_, workers_, lost_time_};
  Views views_{job_, hosts_, servers_, workers_, lost_time_};
  std::vector<PastChange> past_changes_;
};

}  // namespace dt
