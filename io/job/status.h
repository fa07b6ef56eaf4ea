/// The status of a job: what the control socket answers and `dtctl status --json` prints. A struct
/// is an object of the JSON, and its members are named as the keys; status_fields.h says what each
/// is, supervisor/control/job_status fills it. A number is none where it is null, or where a
/// supervisor of another version has none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dt::io {

using MaybeCount = std::optional<std::uint64_t>;
using MaybeNumber = std::optional<double>;
using MaybeText = std::optional<std::string>;
using Counts = std::vector<std::uint64_t>;
using Texts = std::vector<std::string>;

// clang-format off
struct StallStatus { MaybeNumber for_s; bool waited_for = false; std::string process; };
struct WaitStatus { MaybeNumber for_s; std::string text; };
struct LeavingStatus { std::string why, text; MaybeNumber in_s; };
struct StandstillStatus { MaybeNumber for_s, ends_in_s; std::string text; };
struct BalanceStatus { MaybeNumber share; std::string text; };
struct RollbackStatus { MaybeCount to_epoch; std::string why; };
struct RefusedStatus { std::string why; };
struct FleetStatus { std::string provider, text, trouble; };
struct JournalStatus { MaybeNumber waits_s; std::string trouble; };
struct KeptOutStatus { std::string by; MaybeCount refused, dropped, fenced; };
// clang-format on

struct ProgressStatus {
  MaybeCount epoch, step, steps_in_epoch, samples_total;
  MaybeNumber age_s, samples_per_s;
};

struct WorkerStatus {
  MaybeCount id, rank, slot, pid, resident_bytes;
  std::string host, state, why;
  bool leaves_next = false, opened = false;
  MaybeNumber steps_per_s, output_age_s, own_step_s, waits_share, waited_s;
  MaybeText slowest;
  std::optional<StallStatus> stalls;
  std::optional<WaitStatus> waits;
  std::optional<ProgressStatus> progress;
  Counts gpus;
  std::map<std::string, double> values;
  std::map<std::string, std::string> texts;
};

struct ServerStatus {
  MaybeCount id, port, pid, resident_bytes, in_place;
  std::string host, state, process, address, device, device_note;
  MaybeNumber silent_s;
};

struct HostStatus {
  std::string host, link, life, why, last_death, check;
  MaybeText via, gpus, reach_command;
  MaybeCount wanted, beyond_limit, empty_places, attempts, restarts;
  bool prepared = false, given_up = false;
  MaybeNumber cooling_until_s;
  std::optional<LeavingStatus> leaving;
};

struct GpuStatus {
  std::string host, uuid, name;
  Texts trouble;
  Counts workers;
  MaybeNumber power_w;
  MaybeCount index, busy_percent, memory_used, memory_total, temperature_c, ecc_recent, ecc_ever,
      retired_pages, remapped_rows, xid_errors, last_xid, held_back;
};

struct PulseStatus {
  std::string text;
  MaybeNumber epoch_s, boundary_age_s, checkpoint_age_s, boundaries_s, last_boundary_s;
  MaybeCount restarts, checkpoints, boundaries;
};

struct GoodputStatus {
  MaybeNumber share, worker_s;
  std::map<std::string, double> lost_s;
  std::string text;
};

struct CheckpointStatus {
  MaybeCount every, newest, bytes, writing;
  MaybeNumber interval_s;
  std::string none_because, trouble;
};

struct FileStatus {
  std::string path;
  Texts accepted, base, kept, beyond_limit;
  std::optional<RefusedStatus> refused;
};

struct VolumeStatus {
  MaybeNumber stalled_s, queue_age_s, lock_doubtful_s;
  MaybeCount dropped_bytes, queue_length, queue_bytes;
};

struct Status {
  std::string job, state, on_change, waiting, not_open, log_foreign, logs;
  std::optional<bool> elastic;
  bool opaque = false;
  MaybeCount term, generation, epoch, world_size, group_restarts, min_workers, max_workers,
      log_lines;
  MaybeNumber uptime_s, supervisor_s;
  PulseStatus pulse;
  std::optional<StandstillStatus> standstill;
  std::optional<GoodputStatus> goodput;
  std::optional<BalanceStatus> balance;
  std::optional<LeavingStatus> leaving;
  std::optional<RollbackStatus> rolling_back;
  std::optional<FleetStatus> fleet;
  std::vector<WorkerStatus> workers;
  std::vector<ServerStatus> servers;
  std::vector<HostStatus> hosts;
  std::vector<GpuStatus> gpus;
  std::vector<KeptOutStatus> kept_out;
  CheckpointStatus checkpoint;
  FileStatus file;
  JournalStatus journal;
  VolumeStatus volume;
};

}  // namespace dt::io
