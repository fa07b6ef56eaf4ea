/// What the journal holds: every decision of the job, written before it is acted on. Replaying the
/// records in order gives the state a new supervisor starts from; agents report what happened
/// meanwhile.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/id.h"
#include "core/base/wire.h"
#include "core/files/change_log.h"
#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"

namespace dt {

/// First record: what the job is.
struct JobBegan {
  static constexpr std::uint16_t kType = 1;
  std::vector<Host> workers;  ///< Base workers, ids 0..n-1; also generation 1's members.
  std::vector<Host> servers;
};

/// A supervisor has started.
struct TermBegan {
  static constexpr std::uint16_t kType = 2;
  Term term;
};

/// The wanted workers changed: an accepted host_worker.
struct FileTaken {
  static constexpr std::uint16_t kType = 3;
  Edit edit;
  std::vector<HostSlots> hosts;
};

/// A worker id was given to a host. Written before anything is started for it.
struct WorkerAllotted {
  static constexpr std::uint16_t kType = 4;
  WorkerId worker;
  Host host;
  Edit edit;  ///< The edit that asked for it; 0: a restart.
};

/// The data check of a host passed.
struct HostPrepared {
  static constexpr std::uint16_t kType = 5;
  Host host;
};

/// A new contributor set, and at a boundary a new view.
struct Committed {
  static constexpr std::uint16_t kType = 6;
  Generation generation;
  bool boundary = false;
  Epoch epoch;                         ///< Begins (boundary) or goes on.
  std::vector<WorkerId> members;       ///< Rank order; includes members that died since.
  std::vector<WorkerId> contributors;  ///< Rank order.
  std::vector<WorkerId> leavers;       ///< Removed by this commit.
  std::vector<LogLine> log;
  bool saves = false;  ///< The servers save a checkpoint of the epoch's beginning.
};

/// A boundary at which nothing changed.
struct EpochBegan {
  static constexpr std::uint16_t kType = 7;
  Epoch epoch;
};

/// A worker's process has ended or its host is dead: the id is not used again.
struct WorkerGone {
  static constexpr std::uint16_t kType = 8;
  WorkerId worker;
  ExitStatus status;
  std::string why;
  std::vector<LogLine> log;

  [[nodiscard]] std::string reason() const { return why.empty() ? to_string(status) : why; }
  /// What happened to it: "crashed (exit code 1: ValueError: no such batch)", "failed (no sign of
  /// life for 3.0 s)".
  [[nodiscard]] std::string death() const;
};

/// The agent incarnation that a host's processes belong to: another one later means they are dead.
struct AgentKnown {
  static constexpr std::uint16_t kType = 9;
  Host host;
  std::string boot_id;
  std::uint64_t incarnation = 0;  ///< 0: the host has none.

  /// The agent of that boot was let go after all of its processes had ended.
  [[nodiscard]] bool is_let_go() const { return incarnation == 0 && !boot_id.empty(); }
};

/// Where the agent of a host is found, and the ports that it keeps.
struct AgentPlaced {
  static constexpr std::uint16_t kType = 13;
  Host host;
  AgentPlace place;
};

/// The job's end is decided; only stopping is left.
struct JobEnding {
  static constexpr std::uint16_t kType = 10;
  std::int32_t exit_code = 0;
  std::string message;
};

/// A checkpoint is complete on the volume: it is valid.
struct CheckpointTaken {
  static constexpr std::uint16_t kType = 11;
  Epoch epoch;
  Generation generation;
};

/// The job goes back to a checkpoint, with new servers that load it. Their ids are consecutive; the
/// former servers are retired.
struct RolledBack {
  static constexpr std::uint16_t kType = 12;
  Generation generation;
  Epoch epoch;  ///< Begins again.
  /// The checkpoint is the one that the job began with, not one of its own.
  bool is_inherited = false;
  ServerId first;
  std::vector<Host> servers;  ///< Theirs, in order.
  std::string why;
  /// A checkpoint of the job's own that servers could not load: it is not valid any more.
  std::optional<Epoch> damaged;
};

/// A member that had exited with code 0 has left: the others continue without it.
struct MemberLeft {
  static constexpr std::uint16_t kType = 21;
  WorkerId worker;
  Host host;
  bool empties_place = false;  ///< It was wanted: its place stays empty.
  std::vector<LogLine> log;
};

/// Empty places of a host are to be filled again.
struct PlacesWanted {
  static constexpr std::uint16_t kType = 22;
  Host host;
  std::uint32_t count = 0;
};

/// The base workers of a host are to be another one's (Membership::replace_base).
struct BaseReplaced {
  static constexpr std::uint16_t kType = 28;
  Host from;
  Host to;
};

/// What a checkpoint cost, with CheckpointTaken: later terms compute from it when the next is due.
struct CheckpointTimed {
  static constexpr std::uint16_t kType = 20;
  Epoch epoch;
  std::int64_t began_ns = 0;  ///< Wall clock.
  std::uint64_t took_ms = 0;
  std::uint64_t bytes = 0;
};

/// Worker-seconds of a job so far, each half minute: a later term goes on from there.
struct TimeSpent {
  static constexpr std::uint16_t kType = 23;
  std::uint64_t total_ns = 0;
  std::vector<std::pair<std::string, std::uint64_t>> lost;  ///< By cause, in nanoseconds.
};

/// The first records of a journal that was cut (core/job/snapshot.h): what is missing in it.
struct Snapshot {
  static constexpr std::uint16_t kType = 24;
  std::uint64_t records = 0;  ///< How many were left out; in the first of several.
  std::vector<LogLine> log;   ///< Theirs, by SEQ.
};

/// All workers are stopped, so that a new group of them begins (core/job/group_restart.h).
struct GroupStops {
  static constexpr std::uint16_t kType = 30;
  std::string why;
  /// Restarts in a row, with this one, of groups in which a worker died soon.
  std::uint32_t futile = 0;
};

/// A new group of workers begins, after all of the former group have ended. Their ids are
/// consecutive, in rank order.
struct GroupBegan {
  static constexpr std::uint16_t kType = 31;
  Generation generation;
  WorkerId first;
  std::vector<Host> workers;  ///< The host of each, in rank order.
  std::vector<LogLine> log;
  std::vector<WorkerId> changed;  ///< The worker of each line.
  std::int64_t began_ns = 0;      ///< Wall clock.
};

/// The deadline of a notice that asks only for the workers' leaving.
inline constexpr std::int64_t kNoDeadline = std::numeric_limits<std::int64_t>::max();

/// A host goes away at a known time, or all of the job's hosts do (core/job/notices.h). Replaces an
/// earlier notice of the same.
struct NoticeTaken {
  static constexpr std::uint16_t kType = 27;
  std::optional<Host> host;      ///< Nothing: all of them.
  std::int64_t deadline_ns = 0;  ///< Wall clock.
  std::string why;
  std::int64_t left_ns = 0;  ///< Until then, when the record was written.
};

/// A notice does not count any longer.
struct NoticeOver {
  static constexpr std::uint16_t kType = 26;
  std::optional<Host> host;
  bool is_cancelled = false;  ///< The host stays. Otherwise its workers have gone.
};

using Record =
    std::variant<JobBegan, TermBegan, FileTaken, WorkerAllotted, HostPrepared, Committed,
                 EpochBegan, WorkerGone, AgentKnown, JobEnding, CheckpointTaken, RolledBack,
                 MemberLeft, PlacesWanted, AgentPlaced, CheckpointTimed, TimeSpent, Snapshot,
                 GroupStops, GroupBegan, NoticeTaken, NoticeOver, BaseReplaced>;

[[nodiscard]] wire::Frame to_frame(const Record& record);
/// kProtocol for an unknown type or a malformed body.
[[nodiscard]] Result<Record> record_from(const wire::Frame& frame);

/// The lines of host_worker_log that the records call for, by SEQ.
[[nodiscard]] std::vector<LogLine> log_lines(const std::vector<Record>& records);

}  // namespace dt
