/// What the world tells the job machine, and what the machine asks of the world.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/checkpoints.h"
#include "core/job/hang.h"
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
/// An attached agent keeps other ports than it said before.
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
/// An attached agent has said nothing since then, for the time after which a host is suspect.
struct AgentSilent {
  Host host;
  Time since{};
};
/// It says something again.
struct AgentHeard {
  Host host;
};
/// An Attach effect could not be carried out; nothing runs there that was not known before.
struct AttachFailed {
  Host host;
  std::string why;
};
/// A Prepare effect ended.
struct PrepareEnded {
  Host host;
  bool ok = false;
  std::string why;
};
struct WorkerStarted {
  WorkerId worker;
};
struct ProcessEnded {
  ProcessId process;
  ExitStatus status;
  std::string why;         ///< In words; for a start that failed the reason.
  bool never_ran = false;  ///< The start itself failed.
};
struct StoreOpened {
  WorkerId worker;
};
struct WorkerArrived {
  WorkerId worker;
  Epoch epoch;
  bool join = false;
  Generation servers;  ///< Which it knows: Servers::since.
};
struct ServerListening {
  ServerId server;
  std::string address;
  std::uint16_t port = 0;
};
struct CommitAcked {
  ServerId server;
  Generation generation;
};
/// What a server saw of the workers since its last report (core/protocol/control_messages.h,
/// Traffic).
struct TrafficSeen {
  ServerId server;
  std::vector<WorkerId> alive;
  HangWatch::Report rounds;
  std::vector<WorkerId> disconnected{};
  std::vector<StuckLoop> stuck{};
};
/// A worker's data connections brought bytes from these servers since its last word.
struct ServerDataSeen {
  WorkerId worker;
  std::vector<ServerId> servers;
};
/// A worker says where it is.
struct WorkerProgress {
  WorkerId worker;
  Epoch epoch;
  std::uint64_t step = 0;
};
/// Answers Inspect: what the process does, by its kernel.
struct ProcessInspected {
  ProcessId process;
  std::string text;
};
/// A server has written its part of a checkpoint, or could not.
struct ServerSaved {
  ServerId server;
  Saved saved;
};
/// A server cannot begin with its checkpoint, and will exit next.
struct CheckpointUnusable {
  ServerId server;
  std::string why;
};
/// A SealCheckpoint effect ended.
struct CheckpointSealed {
  Generation generation;
  std::string why;  ///< Empty: it is whole.
};
/// dtctl add names a host that has empty places: so many of them are to be filled.
struct PlacesAsked {
  Host host;
  std::uint32_t count = 0;
};
/// Ctrl-C, dtctl stop, or the console went away.
struct StopAsked {
  std::string why;
  std::int32_t exit_code = 130;
};
/// Time passes; deadlines are looked at. About every 100 ms.
struct Tick {};

/// Whether there is a place for checkpoints by time: a volume that every base host sees, with room.
struct CheckpointPlaceSeen {
  std::string why_not;  ///< Empty: there is.
};

using JobEvent =
    std::variant<HostsAccepted, AgentAttached, AgentMoved, AgentDetached, AgentSilent, AgentHeard,
                 AttachFailed, PrepareEnded, WorkerStarted, ProcessEnded, StoreOpened,
                 WorkerArrived, ServerListening, CommitAcked, TrafficSeen, ServerDataSeen,
                 WorkerProgress, ProcessInspected, ServerSaved, CheckpointSealed,
                 CheckpointUnusable, CheckpointPlaceSeen, PlacesAsked, StopAsked, Tick>;

// ------------------------------------------------------------------ effects
// To be carried out in order. Doing one twice must be harmless.

/// Journal it and wait until it is on disk; only then go on with the next effect.
struct Append {
  Record record;
};
/// Reach the host's agent; start one if `start` and none is there. Answered by AgentAttached or
/// AttachFailed (no agent there and `start` false: AgentDetached with `gone`); after a success the
/// link is kept up by the shell (AgentDetached tells a break).
struct Attach {
  Host host;
  bool start = false;
};
/// Let go of a host: if its link is up its agent is told to stop everything and end, else it is no
/// longer tried (the agent ends by its orphan timeout).
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
  std::optional<Epoch> checkpoint = std::nullopt;  ///< Of this job, to begin with; none: the job's.
};
struct Stop {
  ProcessId process;
  Host host;
  Duration grace{};
};
/// Ask what a process does at this moment: answered by ProcessInspected, if it can be.
struct Inspect {
  ProcessId process;
  Host host;
};
/// The process's end is journalled; its agent may forget it.
struct Acknowledge {
  ProcessId process;
  Host host;
};
struct TellServers {
  WorkerId worker;
  Host host;
  Servers message;
};
struct TellRelease {
  WorkerId worker;
  Host host;
  Release message;
};
struct TellShrunk {
  WorkerId worker;
  Host host;
  Shrunk message;
};
struct TellCommit {
  ServerId server;
  Host host;
  ServerCommit message;
};
/// Every server's file of a checkpoint is there: make it count. Answered by CheckpointSealed, after
/// tries enough; older checkpoints beyond those to be kept go then.
struct SealCheckpoint {
  Checkpoints::Saving what;
};
/// For people: one line of the story, for the console and events.jsonl.
struct Note {
  enum class Kind : std::uint8_t {
    kInfo,
    kLaunch,   ///< A process is being launched.
    kCommit,   ///< The view changed.
    kRefusal,  ///< Something asked for is not done.
    kFailure,  ///< Something failed; what is done about it.
    kMeasure,  ///< Only for events.jsonl.
  };
  Kind kind = Kind::kInfo;
  std::string what;  ///< Stable event name: "worker_joined".
  std::string text;  ///< The sentence.
  std::optional<WorkerId> worker = std::nullopt;
  std::optional<Host> host = std::nullopt;
  std::vector<std::pair<std::string, double>> numbers = {};  ///< Fields of the event.
  std::optional<LogLine> line = std::nullopt;  ///< Of host_worker_log: it says the same.
};
/// The job is over: stop everything everywhere (TERM, then KILL after `grace`), then report.
struct End {
  std::int32_t exit_code = 0;
  std::string message;
  Duration grace{};
};

using Effect = std::variant<Append, Attach, ReleaseHost, Prepare, StartWorker, StartServer, Stop,
                            Inspect, Acknowledge, TellServers, TellRelease, TellShrunk, TellCommit,
                            SealCheckpoint, Note, End>;

}  // namespace dt
