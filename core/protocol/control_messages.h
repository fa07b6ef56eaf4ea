/// Every control message: supervisor <-> agent, and process (worker or server) <-> supervisor,
/// which an agent carries unread. One place, so that both ends and the simulator agree. The data
/// plane's frames are in kvstore/protocol/messages.h.
///
/// Rules of the links:
///  1. Every message may arrive twice; handling it again must be harmless.
///  2. The agent keeps, per process, the latest `FromProcess` frame of each type and the exit
///     status, and reports them in AgentState at each attach. It keeps the latest `ToProcess` frame
///     of each type until the process has connected and got it.
///  3. A lower term than one already seen is refused with `Refused`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/base/wire.h"
#include "core/files/hosts.h"

namespace dt {

inline constexpr std::uint16_t kProtocolVersion = 5;

enum class Role : std::uint8_t {
  kServer = 0,
  kWorker = 1,
  kPrepare = 2,  ///< The prepare-data command of a host.
};

/// Names a process of the job: a role and that role's id. Prepare runs are numbered by the
/// supervisor, so an id is never used twice.
struct ProcessId {
  Role role = Role::kWorker;
  std::uint32_t id = 0;

  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

/// "worker 3", "server 0", "prepare-data 7".
[[nodiscard]] std::string to_string(ProcessId id);

/// How a process ended: at most one of `code` and `signal` is not zero.
struct ExitStatus {
  std::int32_t code = 0;    ///< Exit code when signal is 0.
  std::int32_t signal = 0;  ///< Terminating signal, or 0.

  [[nodiscard]] bool clean() const { return code == 0 && signal == 0; }
  /// As a shell gives it: the code, or 128 + signal.
  [[nodiscard]] int shell_code() const { return signal ? 128 + signal : code; }
  friend bool operator==(const ExitStatus&, const ExitStatus&) = default;
};

/// "exit code 3", "killed by signal 9 (KILL)".
[[nodiscard]] std::string to_string(const ExitStatus& status);

// ---------------------------------------------------------------- supervisor -> agent

/// First message on an attached stream. Sent again every few seconds it is a sign of life: from
/// then on, silence for the orphan timeout counts as no supervisor, even if the connection seems
/// open (a master that lost its power closes nothing). Only the first one is answered.
struct AgentHello {
  static constexpr std::uint16_t kType = 1;
  std::uint16_t version = kProtocolVersion;
  std::string job;   ///< Job name, as in DT_JOB.
  std::string host;  ///< Host as written.
  Term term;
  std::uint32_t orphan_timeout_ms = 300'000;  ///< Without a supervisor for so long: stop all, exit.
  std::uint32_t beat_ms = 250;                ///< See Beat.
  /// For each process whose output this supervisor follows, the end of the last Output that it got
  /// (offset + size), 0 before any. Output that a broken link lost is sent again from there; for a
  /// process not named, none is.
  std::vector<std::pair<ProcessId, std::uint64_t>> received;
};

/// Ports that an agent keeps for programs of the job (AgentPlace). A bit each.
enum class Port : std::uint8_t {
  kNone = 0,
  kMaster = 1,  ///< MASTER_PORT
  kRoot = 2,    ///< DMLC_PS_ROOT_PORT
  kBoth = 3,
  kOnce = 4,  ///< After the process's end others are kept, never these again.
  kBothOnce = 7,
};

/// Starts a process. Idempotent by id: a known id answers with its present state.
struct StartProcess {
  static constexpr std::uint16_t kType = 2;
  ProcessId process;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;  ///< Added to the agent's own environment.
  std::string cwd;  ///< Falls back to the home folder with a message if it cannot be entered.
  Port ports = Port::kNone;  ///< It may listen on these: they are free when it is executed.
};

/// TERM to the process group, KILL after the grace period (0: KILL at once).
struct StopProcess {
  static constexpr std::uint16_t kType = 3;
  ProcessId process;
  std::uint32_t grace_ms = 0;
};

/// The supervisor has journalled this exit; the agent may forget the process.
struct AckExit {
  static constexpr std::uint16_t kType = 4;
  ProcessId process;
};

/// A frame for the process's own connection (see the Process messages below).
struct ToProcess {
  static constexpr std::uint16_t kType = 5;
  ProcessId process;
  std::uint16_t type = 0;
  std::string body;
};

/// Stop every process with this grace, sweep, send the output that is left, then exit.
struct Shutdown {
  static constexpr std::uint16_t kType = 6;
  std::uint32_t grace_ms = 0;
  bool drops_output = false;  ///< Output is not waited for.
  /// Another master takes the job over: no supervisor of a lower term is served here any more.
  bool takes_over = false;
};

/// Queries a process's state in the kernel. Answered by ProcessState, if it lives.
struct AskProcess {
  static constexpr std::uint16_t kType = 7;
  ProcessId process;
};

/// How many bytes of output (Output::bytes) the agent may send in all over this link. Comes again
/// about once a second while little of it is unused: without, or while the shared volume stalls, no
/// process is to wait for it.
struct OutputRoom {
  static constexpr std::uint16_t kType = 13;
  std::uint64_t bytes = 0;
  bool is_stalled = false;  ///< The shared volume takes nothing.
};

/// The room before the first OutputRoom.
inline constexpr std::uint64_t kFirstOutputRoom = std::uint64_t{32} << 10;

/// Asks whether processes can start in a folder of the host. Answered by FolderChecked, as soon as
/// the folder's file system answers.
struct CheckFolder {
  static constexpr std::uint16_t kType = 12;
  std::string folder;
};

// ---------------------------------------------------------------- agent -> supervisor

/// An agent's report of one process. `exit` set: it has ended and waits for AckExit.
struct ProcessReport {
  ProcessId process;
  std::int32_t pid = 0;  ///< 0: it was created, and does not run its command yet.
  std::optional<ExitStatus> exit;
  std::vector<std::pair<std::uint16_t, std::string>> said;  ///< Latest FromProcess of each type.
};

/// Where an agent is found on its host, and the ports that it keeps there for programs of the job.
/// Part of AgentState; sent again when it changes.
struct AgentPlace {
  static constexpr std::uint16_t kType = 44;
  std::string socket;             ///< Absolute path of its unix socket; empty: not known.
  std::uint16_t master_port = 0;  ///< MASTER_PORT of a job whose rank 0 is here; 0: none is free.
  std::uint16_t root_port = 0;    ///< DMLC_PS_ROOT_PORT of a job whose first host this is.
  friend bool operator==(const AgentPlace&, const AgentPlace&) = default;
};

/// First answer on an attached stream: who this agent is and what it has. A different identity
/// than before means that everything there is dead.
struct AgentState {
  static constexpr std::uint16_t kType = 32;
  std::uint16_t version = kProtocolVersion;
  std::string boot_id;
  std::uint64_t incarnation = 0;  ///< Random per agent life.
  std::uint32_t cores = 0;        ///< Usable cores, for OMP_NUM_THREADS.
  std::string machine;            ///< Machine id: equal for "hosts" that are one machine.
  std::vector<ProcessReport> processes;
  AgentPlace place;
  std::string ssh_address;        ///< Where the ssh connection that started it came in; or empty.
  std::string interface_address;  ///< Of the interface that leads out; empty: there is none.
};

struct ProcessStarted {
  static constexpr std::uint16_t kType = 33;
  ProcessId process;
  std::int32_t pid = 0;
};

/// The process could not be started (no such command, cwd gone, fork failed): it has ended.
struct ProcessFailed {
  static constexpr std::uint16_t kType = 34;
  ProcessId process;
  std::string why;
};

struct ProcessExited {
  static constexpr std::uint16_t kType = 35;
  ProcessId process;
  ExitStatus status;
  bool has_output = false;  ///< More of it comes, and then OutputEnded: it waits for room.
};

/// Why output is missing.
enum class OutputLoss : std::uint8_t {
  kLink = 0,        ///< The link was down, or took nothing.
  kVolume = 1,      ///< The shared volume took nothing.
  kSupervisor = 2,  ///< There was none, or it gave no room.
  kKilled = 3,      ///< The job was killed.
};

/// Bytes a process wrote, in order, cut anywhere.
struct Output {
  static constexpr std::uint16_t kType = 36;
  ProcessId process;
  bool is_stderr = false;
  std::string bytes;
  std::uint64_t lost_before = 0;  ///< Bytes the bounded spool had to drop before these.
  /// Position of the first byte in the process's whole output, both streams.
  std::uint64_t offset = 0;
  OutputLoss why_lost = OutputLoss::kLink;  ///< If any was.
};

/// All output of a process whose exit came before it.
struct OutputEnded {
  static constexpr std::uint16_t kType = 55;
  ProcessId process;
};

/// A frame from the process's own connection.
struct FromProcess {
  static constexpr std::uint16_t kType = 37;
  ProcessId process;
  std::uint16_t type = 0;
  std::string body;
};

/// Heartbeat, when the agent has sent nothing else for beat_ms.
struct Beat {
  static constexpr std::uint16_t kType = 38;
  std::uint64_t count = 0;
};

/// The agent will not serve this supervisor: lower term, other version, other job.
struct Refused {
  static constexpr std::uint16_t kType = 39;
  std::string why;
  Term term;  ///< The highest that was there; 0: unknown.
};

/// Sent by the attach bridge itself: no agent of this job runs on the host.
struct NoAgent {
  static constexpr std::uint16_t kType = 40;
};

/// What a process and those below it do at this moment, for people:
/// "python3 (pid 41): stopped (T) in do_signal_stop".
struct ProcessState {
  static constexpr std::uint16_t kType = 41;
  ProcessId process;
  std::string text;
};

/// What a listener has rejected since it began to listen, before any state changed. Sent by an
/// agent for its unix socket and by a server for its port, when it has changed.
struct KeptOut {
  static constexpr std::uint16_t kType = 42;
  std::uint64_t refused = 0;  ///< Connections: no valid identification, or one too many.
  std::uint64_t dropped = 0;  ///< Connections: identified, but with an invalid message.
  std::uint64_t fenced = 0;   ///< Requests of workers that are no members.
  friend bool operator==(const KeptOut&, const KeptOut&) = default;
};

/// A GPU of the host as its driver (NVML) describes it. Values that the driver lacks are missing.
struct GpuReport {
  std::uint32_t index = 0;  ///< As the driver counts: by place on the bus.
  std::string uuid;         ///< "GPU-...".
  std::string name;
  std::optional<std::uint32_t> busy_percent;
  std::optional<std::uint64_t> memory_used;   ///< Bytes.
  std::optional<std::uint64_t> memory_total;  ///< Bytes.
  std::optional<std::uint32_t> temperature_c;
  std::optional<std::uint32_t> power_mw;
  std::optional<std::uint64_t> ecc_recent;  ///< Uncorrected, since the driver was loaded.
  std::optional<std::uint64_t> ecc_ever;    ///< Uncorrected, in the GPU's life.
  std::optional<std::uint32_t> retired_pages;
  std::optional<std::uint32_t> remapped_rows;
  bool retirement_pending = false;
  bool remapping_pending = false;
  bool remapping_failed = false;
  std::uint64_t held_back = 0;   ///< Why its clocks are reduced (nvmlClocksThrottleReason...).
  std::uint32_t xid_errors = 0;  ///< Since it is watched.
  std::uint64_t last_xid = 0;    ///< A program's error only if there was no other.
  std::string unanswered;        ///< Empty, or why the driver has no values: "GPU is lost".
  friend bool operator==(const GpuReport&, const GpuReport&) = default;
};

/// The GPUs of a host, when what is known of them has changed; never of a host without any.
struct GpuHealth {
  static constexpr std::uint16_t kType = 43;
  std::vector<GpuReport> gpus;
  std::string trouble;  ///< Trouble of all of them: "NVML has not answered for 30 s".
  /// For each worker the numbers of the GPUs it sees (core/protocol/gpu_health.h, visible_gpus).
  std::vector<std::pair<WorkerId, std::vector<std::uint32_t>>> workers;
  friend bool operator==(const GpuHealth&, const GpuHealth&) = default;
};

/// Answers CheckFolder.
struct FolderChecked {
  static constexpr std::uint16_t kType = 52;
  std::string folder;
  std::int32_t error = 0;  ///< 0: it can be entered; else the errno of the try.
};

enum class NoticeKind : std::uint8_t {
  kSignal = 0,  ///< The scheduler's, to what it started on the host.
};

/// The agent's host goes away. Sent again at each attach.
struct Notice {
  static constexpr std::uint16_t kType = 54;
  NoticeKind kind = NoticeKind::kSignal;
  std::uint32_t deadline_ms = 0;  ///< From now.
  std::string text;
  bool is_repeated = false;  ///< An earlier supervisor or link may have had it.
};

/// What the processes of the host use, every few seconds.
struct Usage {
  static constexpr std::uint16_t kType = 53;
  /// Resident memory of each process and those below it, in bytes; pages that they share count once
  /// for each.
  std::vector<std::pair<ProcessId, std::uint64_t>> resident;
  /// Processes that have not run freely for 10 s: their output has to wait.
  std::vector<ProcessId> held;
};

// ---------------------------------------------------------------- process <-> its agent
// On the agent's unix socket ($DT_AGENT_SOCKET). The first frame is Identify; the agent checks the
// token it put into the process's environment. Afterwards frames are carried unread.

struct Identify {
  static constexpr std::uint16_t kType = 64;
  ProcessId process;
  std::string token;  ///< $DT_TOKEN
};

// ---------------------------------------------------------------- worker -> supervisor

/// The worker's program opened a distributed kvstore: the job is not opaque.
struct OpenedKvStore {
  static constexpr std::uint16_t kType = 65;
  std::string type;  ///< "dist_sync", ...
};

/// epoch_boundary was called: every earlier round is finished. A newcomer's first Arrive is its
/// join (it is WARM: data loaded, servers connected, weights pulled); its epoch is ignored.
struct Arrive {
  static constexpr std::uint16_t kType = 66;
  Epoch epoch;
  bool join = false;   ///< No view was ever released to this worker.
  Generation servers;  ///< Servers::since of the servers it is connected to.
};

/// Sign of life with position; at most about one a second.
struct Progress {
  static constexpr std::uint16_t kType = 67;
  Epoch epoch;
  std::uint64_t step = 0;
};

/// What people may want to know of the training, once a second if it has changed.
struct Figures {
  static constexpr std::uint16_t kType = 69;
  std::uint64_t samples = 0;                             ///< Pushed since the worker's begin.
  std::uint64_t steps_in_epoch = 0;                      ///< 0: not known.
  std::uint64_t dropped = 0;                             ///< Reported values that were not finite.
  std::vector<std::pair<std::string, double>> values{};  ///< By name, the latest of each.
  /// Of the keys whose requests were not answered for 1 s, the lowest, as in WaitingFor.
  KeyId waits_key{};
  std::string waits_in{};     ///< What that is, for people; empty: there is none.
  std::uint64_t steps{};      ///< Pushes that `samples` counts.
  std::uint64_t waited_ns{};  ///< For so long calls of the store have blocked, since its begin.
  std::vector<std::pair<std::string, std::string>> texts{};  ///< As `values`.
};

/// Once a second, and once more when the list has become empty: the servers from which bytes
/// arrived on this worker's data connections since the last message. It distinguishes a server
/// whose agent is out of reach from one that is dead.
struct ServersHeard {
  static constexpr std::uint16_t kType = 68;
  std::vector<ServerId> servers;
  friend bool operator==(const ServersHeard&, const ServersHeard&) = default;
};

/// What the worker's program wrote to $TORCHELASTIC_ERROR_FILE before it ended, or the line of the
/// Python exception that ended it. Its agent sends it, before the exit.
struct ErrorFile {
  static constexpr std::uint16_t kType = 70;
  std::string json;
};

// ---------------------------------------------------------------- server -> supervisor

struct ServerReady {
  static constexpr std::uint16_t kType = 80;
  std::string address;  ///< Literal address workers connect to.
  std::uint16_t port = 0;
  std::string device;       ///< Where its values are: "cpu", "cuda:0".
  std::string device_note;  ///< The device's name; of auto on the CPU, why it has no GPU.
};

/// The server has adopted this commit.
struct CommitAck {
  static constexpr std::uint16_t kType = 81;
  Generation generation;
};

/// An event loop of a server that has not turned for a while.
struct StuckLoop {
  std::uint32_t loop = 0;          ///< 0 is the first.
  std::uint32_t milliseconds = 0;  ///< Since its last turn.
  std::string state;               ///< Its thread's state in the kernel; empty if unknown.
  friend bool operator==(const StuckLoop&, const StuckLoop&) = default;
};

/// A worker that waits at a server for others.
struct WaitingFor {
  /// The key's number if it waits for no key: at the barrier, or for keys to be created.
  static constexpr KeyId kNoKey{0xffffffff};
  WorkerId worker;
  KeyId key;               ///< The lowest key in which it waits here.
  WorkerId lacks;          ///< The missing worker with the lowest id.
  std::uint32_t more = 0;  ///< How many others are missing.
  friend bool operator==(const WaitingFor&, const WaitingFor&) = default;
};

/// Twice a second, and at once when owing, waiting, stuck or waits change: the workers' activity,
/// the workers that others may wait for, the loops that are stuck. Sent even while all loops are
/// stuck.
struct Traffic {
  static constexpr std::uint16_t kType = 82;
  std::vector<WorkerId> alive;  ///< Their data connections showed life, at least a heartbeat.
  std::vector<WorkerId> disconnected;  ///< Have no data connection now.
  std::vector<WorkerId> busy;          ///< Sent a request.
  std::vector<WorkerId>
      owing;  ///< A round of others lacks their part, and they sent nothing lately.
  std::vector<WorkerId> waiting;  ///< Their round is still open, and they sent nothing lately.
  std::vector<StuckLoop> stuck;   ///< Loops that have not turned for 3 s.
  /// Of `waiting`, once no worker has sent a request for 1 s: at most 16, each key's first.
  std::vector<WaitingFor> waits{};
  /// Rounds of chunks that were completed since the last report, and in how many of them this
  /// worker came last, by more than 5 % of the round: of all workers the most.
  std::uint32_t rounds{};
  std::uint32_t late_rounds{};
  WorkerId latest{};
  /// Contributions that were read in the device memory of their worker, since the server's begin.
  std::uint64_t in_place{};
};

/// The process cannot go on, in its own words; it will exit next.
struct GivingUp {
  static constexpr std::uint16_t kType = 83;
  std::string why;
  bool is_checkpoint = false;  ///< The one that a server was to load cannot be read.
};

/// What became of the checkpoint that the commit of `generation` asked for.
struct Saved {
  static constexpr std::uint16_t kType = 84;
  Epoch epoch;
  Generation generation;
  std::string why;  ///< Empty: the file is on the volume, synced.
  std::uint64_t bytes = 0;
  std::uint32_t header_crc = 0;
  std::uint64_t step = 0;  ///< The last update before it.
};

// ---------------------------------------------------------------- supervisor -> worker

struct ServerAddress {
  ServerId server;
  std::string address;
  std::uint16_t port = 0;
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

/// Where the servers are; in ServerId order. One with a higher `since` takes the place of those
/// before: requests to those have failed, and the worker arrives again, at `epoch`.
struct Servers {
  static constexpr std::uint16_t kType = 96;
  std::vector<ServerAddress> servers;
  Generation since;  ///< They have served from then on; 0: from the job's begin.
  Epoch epoch;       ///< The checkpoint that they loaded, if not from the job's begin.
};

enum class Verdict : std::uint8_t {
  kContinue = 0,
  kLeave = 1,     ///< Stop training and exit 0.
  kRollback = 2,  ///< Continue, with new servers and the weights of that epoch's begin.
};

/// Answers Arrive. Idempotent per (worker, epoch).
struct Release {
  static constexpr std::uint16_t kType = 97;
  Verdict verdict = Verdict::kContinue;
  Generation generation;
  Rank rank;
  std::uint32_t world_size = 0;
  Epoch epoch;            ///< The epoch that begins.
  bool newcomer = false;  ///< First release of this worker: pull once more before going on.
};

/// The contributor set shrank in mid-epoch; ranks and world size stay. `lead` has rank 0's duties.
struct Shrunk {
  static constexpr std::uint16_t kType = 98;
  Generation generation;
  WorkerId lead;
};

// ---------------------------------------------------------------- supervisor -> server

/// The contributor set from now on. A server refuses a lower (term, generation).
struct ServerCommit {
  static constexpr std::uint16_t kType = 112;
  Term term;
  Generation generation;
  Epoch epoch;                         ///< The epoch that begins or goes on.
  bool boundary = false;               ///< For traces: servers go by the epoch.
  std::vector<WorkerId> contributors;  ///< In rank order; the first initialises keys.
  /// A checkpoint of the values at the first receipt of this generation is to be saved, provided
  /// that no worker was released yet: every later commit of the epoch repeats it.
  std::optional<Generation> checkpoint;
};

}  // namespace dt
