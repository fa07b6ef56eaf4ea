/// The job machine's inputs (events) and outputs (effects).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/records.h"
#include "core/protocol/control_messages.h"

namespace dt {

// ------------------------------------------------------------------ events

/// A host_worker content was accepted (core/files/file_watch.h) and its slots summed.
struct HostsAccepted {
  std::vector<HostSlots> hosts;
};
/// An agent is attached; its processes as it reports them.
struct AgentAttached {
  Host host;
  std::string boot_id;
  std::uint64_t incarnation = 0;
  std::vector<ProcessReport> processes;
  AgentPlace place{};
};
/// The ports that an attached agent reserves have changed.
struct AgentMoved {
  Host host;
  AgentPlace place;
};
/// The link to an agent broke. `gone`: the host answered that no agent is there.
struct AgentDetached {
  Host host;
  std::string why;
  bool gone = false;
};
/// No message has come from an attached agent since then: as long as makes a host suspect.
struct AgentSilent {
  Host host;
  Time since{};
};
/// A message has come from it again.
struct AgentHeard {
  Host host;
};
/// An Attach effect could not be carried out; nothing runs there that was not known before.
struct AttachFailed {
  Host host;
  std::string why;
  bool is_final = false;  ///< Waiting does not mend it: an unknown name, a refused key.
};
/// A Prepare effect ended.
struct PrepareEnded {
  Host host;
  bool ok = false;
  std::string why;
  bool is_preflight = false;  ///< The newcomers' gate did not let it pass.
};
struct WorkerStarted {
  WorkerId worker;
};
struct ProcessEnded {
  ProcessId process;
  ExitStatus status;
  std::string why;         ///< In words; for a start that failed the reason.
  bool never_ran = false;  ///< The start itself failed.

  [[nodiscard]] std::string reason() const { return why.empty() ? to_string(status) : why; }
};
/// A message of a worker: OpenedKvStore, Arrive, Progress, Figures or ServersHeard.
template <class Message>
struct FromWorker {
  WorkerId worker;
  Message message;
};
/// A message of a server: ServerReady, CommitAck, Traffic, Saved, or GivingUp on a checkpoint.
template <class Message>
struct FromServer {
  ServerId server;
  Message message;
};
/// Answers Inspect: the process's state in the kernel.
struct ProcessInspected {
  ProcessId process;
  std::string text;
};
/// A SealCheckpoint effect ended.
struct CheckpointSealed {
  Generation generation;
  std::string why;  ///< Empty: it is whole.
};
/// dtctl add names a host with empty places: `count` of them are to be filled.
struct PlacesAsked {
  Host host;
  std::uint32_t count = 0;
};
/// dtctl replace: the base workers of `from` are to be `to`'s.
struct ReplaceAsked {
  Host from;
  Host to;
};
/// Ctrl-C, dtctl stop, or the console was closed.
struct StopAsked {
  std::string why;
  std::int32_t exit_code = 130;
};
/// A host goes away after that time, or all of the job's hosts do.
struct NoticeGiven {
  std::optional<Host> host;      ///< Nothing: all of them.
  std::optional<Duration> left;  ///< Nothing: only the workers are to leave.
  std::string why;
  bool is_repeated = false;  ///< Its source may have said the same before.
};
/// The host stays, or all of them do.
struct NoticeCancelled {
  std::optional<Host> host;
};
/// Time passes; deadlines are checked. About every 100 ms.
struct Tick {};

/// Whether the folder's lock cannot be read for so long that another master may have taken the job
/// over: then nothing is started. What runs goes on.
struct LockDoubtful {
  bool is_doubtful = false;
};

/// Whether there is a place for checkpoints by time: a volume that every base host sees, with room.
struct CheckpointPlaceSeen {
  std::string why_not;  ///< Empty: there is.
};

using JobEvent =
    std::variant<HostsAccepted, AgentAttached, AgentMoved, AgentDetached, AgentSilent, AgentHeard,
                 AttachFailed, PrepareEnded, WorkerStarted, ProcessEnded, FromWorker<OpenedKvStore>,
                 FromWorker<Arrive>, FromWorker<Progress>, FromWorker<Figures>,
                 FromWorker<ServersHeard>, FromServer<ServerReady>, FromServer<CommitAck>,
                 FromServer<Traffic>, FromServer<Saved>, FromServer<GivingUp>, ProcessInspected,
                 CheckpointSealed, CheckpointPlaceSeen, LockDoubtful, PlacesAsked, ReplaceAsked,
                 NoticeGiven, NoticeCancelled, StopAsked, Tick>;

// ------------------------------------------------------------------ effects
// To be carried out in order. Doing one twice must be harmless.

/// Journal it and wait until it is on disk; only then go on with the next effect.
struct Append {
  Record record;
};
/// Reach the host's agent; start one if `start` and none is there. Answered by AgentAttached or
/// AttachFailed (no agent there and `start` false: AgentDetached with `gone`); after a success the
/// link is kept up by the caller (AgentDetached reports a break).
struct Attach {
  Host host;
  bool start = false;
};
/// Release a host: its agent is to stop everything and exit. If its link is down, no further try is
/// made (the agent exits at its orphan timeout).
struct ReleaseHost {
  Host host;
};
/// Run the data check of a host: answered by PrepareEnded.
struct Prepare {
  Host host;
};
struct StartWorker {
  WorkerId worker;
  Host host;
  bool newcomer = false;
  Rank rank;                     ///< Prediction for a newcomer.
  std::uint32_t world_size = 0;  ///< Prediction for a newcomer.
  Epoch epoch;                   ///< Prediction for a newcomer.
};
struct StartServer {
  ServerId server;
  Host host;
  std::uint32_t index = 0;                         ///< Among the servers.
  std::optional<Epoch> checkpoint = std::nullopt;  ///< To load; none: the inherited one, if any.
};
struct Stop {
  ProcessId process;
  Host host;
  Duration grace{};
};
/// Query a process's state: answered by ProcessInspected, if that is possible.
struct Inspect {
  ProcessId process;
  Host host;
};
/// The process's exit is journalled; its agent may forget it.
struct Acknowledge {
  ProcessId process;
  Host host;
};
/// To a worker: Servers, Release or Shrunk.
template <class Message>
struct SendToWorker {
  WorkerId worker;
  Host host;
  Message message;
};
struct SendCommit {
  ServerId server;
  Host host;
  ServerCommit message;
};
/// Every server's file of a checkpoint exists: make the checkpoint valid, with retries, and delete
/// older ones beyond those to be kept. Answered by CheckpointSealed.
struct SealCheckpoint {
  Epoch epoch;
  Generation generation;
  std::map<ServerId, Saved> files;
};
/// One line for the console and events.jsonl.
struct Note {
  enum Kind : std::uint8_t {
    kInfo,
    kLaunch,   ///< A process is being launched.
    kCommit,   ///< The view changed.
    kRefusal,  ///< A request is not carried out.
    kFailure,  ///< A failure, and the reaction to it.
    kMeasure,  ///< Only for events.jsonl.
  };
  Kind kind = kInfo;
  std::string what;  ///< Stable event name: "worker_joined".
  std::string text;  ///< The sentence.
  std::optional<WorkerId> worker = std::nullopt;
  std::optional<Host> host = std::nullopt;
  std::vector<std::pair<std::string, double>> numbers = {};  ///< Fields of the event.
  std::optional<LogLine> line = std::nullopt;  ///< The same change in host_worker_log.
};
/// The job is over: stop everything everywhere (TERM, then KILL after `grace`), then report.
struct End {
  std::int32_t exit_code = 0;
  std::string message;
  Duration grace{};
};

using Effect = std::variant<Append, Attach, ReleaseHost, Prepare, StartWorker, StartServer, Stop,
                            Inspect, Acknowledge, SendToWorker<Servers>, SendToWorker<Release>,
                            SendToWorker<Shrunk>, SendCommit, SealCheckpoint, Note, End>;

}  // namespace dt
