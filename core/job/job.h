/// The job as one pure machine: events in, effects and reasons out. No clock, no socket, no file.
/// It gives each event to the machine that owns its subject, then lets all of them decide in one
/// fixed order:
///
///     HostTable    links to agents, retries            ServerGroup  servers, rollback
///     HostWatch    when a silent host is lost          Workers      lives and deaths of workers
///     Newcomers    starts missing workers              Stragglers   workers that others wait for
///     Views        boundaries, commits, releases       LostTime     how long members wait
///     Checkpoints  when one is saved, which are valid
///     GroupRestart restarts all workers, where that is how they change
///     Notices      hosts that go away at a known time
///
/// Each knows only those before it in the list in job.cpp; JobContext is what they share. They
/// decide on the hosts of its agenda only, so that an event costs what it changes and not what
/// there is.
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

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/events.h"
#include "core/job/options.h"

namespace dt {

class Boundary;
class Checkpoints;
class Goodput;
class HostTable;
class Membership;
class Notices;
class ServerGroup;
class Stragglers;
struct PastChange;

class Job {
 public:
  /// A new job (no records) or one to be resumed.
  Job(JobOptions options, const std::vector<Record>& records, Instant now);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The first effects of this term. Call once.
  [[nodiscard]] std::vector<Effect> begin(Term term, Instant now);
  [[nodiscard]] std::vector<Effect> step(const JobEvent& event, Instant now);

  /// For tests, after a step: what that step left undone, empty if nothing. Every host is decided
  /// on once more, which must have no effect, and every index is compared with what it indexes.
  [[nodiscard]] std::string unsettled(Instant now);

  // What status shows.
  [[nodiscard]] const HostTable& hosts() const;
  [[nodiscard]] const ServerGroup& servers() const;
  [[nodiscard]] const Checkpoints& checkpoints() const;
  [[nodiscard]] const Membership& membership() const;
  [[nodiscard]] const Stragglers& stragglers() const;
  [[nodiscard]] const Notices& notices() const;
  [[nodiscard]] const Boundary& boundary() const;
  /// What the next boundary waits for, or why nothing changes; empty if nothing is pending.
  [[nodiscard]] std::string pending_reason() const;
  /// Up to the last event, with waits that have not ended.
  [[nodiscard]] Goodput goodput() const;
  [[nodiscard]] std::uint64_t log_lines() const;
  /// Changes of earlier terms, in the order of their lines: a supervisor may have died before it
  /// wrote the note of one.
  [[nodiscard]] const std::vector<PastChange>& past_changes() const;
  /// Restarts of all workers as a new group.
  [[nodiscard]] std::uint32_t group_restarts() const;
  /// All workers are being stopped, so that a new group can begin (--on-change restart).
  [[nodiscard]] bool group_stops() const;
  [[nodiscard]] bool opened() const;
  [[nodiscard]] bool finishing() const;
  [[nodiscard]] bool ending() const;
  /// One word: starting, running, finishing, ended.
  [[nodiscard]] std::string_view phase() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace dt
