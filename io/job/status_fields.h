/// The fields of a job's status, a row each. The JSON, the metrics, the manual, and the paths that
/// `dtctl wait` takes are made from these rows.
#pragma once

#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/base/result.h"
#include "io/job/status.h"

namespace dt::io {

/// Bytes that are not UTF-8, as names from drivers may have, are replaced.
[[nodiscard]] std::string to_json(const Status& status);
/// Keys that are missing, or of another type, have their members' defaults; unknown ones are
/// ignored. kProtocol when it is no JSON object at all.
[[nodiscard]] Result<Status> status_from(std::string_view json);

struct StatusPath {
  std::string path;  ///< "workers[].progress.epoch"; "*": any name.
  const char* text;  ///< A sentence.
};
/// Of all fields; objects before their own fields.
[[nodiscard]] std::vector<StatusPath> status_paths();

template <class Object, class Member>
struct StatusField {
  const char* key;
  Member Object::*member;
  bool (*is_told)(const Object&);  ///< Otherwise the JSON has no such key; null: always.
  const char* text;                ///< A sentence, for the manual and of the metric.
  const char* metric = nullptr;    ///< Its name; that of a counter ends with _total.
  double scale = 1;                ///< From the field's unit to the metric's.
};

/// The JSON omits most fields of a host that the job has not used, and of a GPU driver that does
/// not answer.
inline bool is_known(const HostStatus& host) { return host.attempts.has_value(); }
inline bool is_known(const GpuStatus& gpu) { return gpu.index.has_value(); }
inline bool has_command(const HostStatus& host) { return host.reach_command.has_value(); }

/// The rows of a struct.
template <class Object>
struct StatusRows;

#define DT_ROWS(Object, ...)                       \
  template <>                                      \
  struct StatusRows<Object> {                      \
    using Of = Object;                             \
    static constexpr std::tuple kAll{__VA_ARGS__}; \
  };
#define DT_ROW_IF(is_told, name, ...) \
  StatusField<Of, decltype(Of::name)> { #name, &Of::name, is_told, __VA_ARGS__ }
#define DT_ROW(...) DT_ROW_IF(nullptr, __VA_ARGS__)

// clang-format off
DT_ROWS(PulseStatus,
    DT_ROW(text, "All of it in a line."),
    DT_ROW(epoch_s, "Mean duration of the last epochs.", "epoch_duration_seconds"),
    DT_ROW(boundary_age_s, "Time since the last boundary.", "boundary_age_seconds"),
    DT_ROW(last_boundary_s, "The last boundary, from its first arrival to its last release.",
           "last_boundary_duration_seconds"),
    DT_ROW(boundaries, "Boundaries from one epoch to the next."),
    DT_ROW(boundaries_s, "The sum of their durations."),
    DT_ROW(restarts, "Restarts after workers' deaths.", "worker_restarts_total"),
    DT_ROW(checkpoints, "Checkpoints that were completed.", "checkpoints_total"),
    DT_ROW(checkpoint_age_s, "Time since the newest checkpoint was completed.",
           "checkpoint_age_seconds"))
DT_ROWS(ProgressStatus,
    DT_ROW(epoch, "The worker's epoch.", "worker_epoch"),
    DT_ROW(step, "The worker's step.", "worker_step"),
    DT_ROW(steps_in_epoch, "Steps of the epoch."),
    DT_ROW(age_s, "Time since it came to the step."),
    DT_ROW(samples_total, "Samples the worker has pushed.", "worker_samples_total"),
    DT_ROW(samples_per_s, "Samples a second, lately.", "worker_samples_per_second"))
DT_ROWS(StallStatus,
    DT_ROW(for_s, "For how long the worker has done nothing.", "worker_stall_seconds"),
    DT_ROW(waited_for, "The others wait for it."),
    DT_ROW(process, "What it does, by its kernel."))
DT_ROWS(WaitStatus,
    DT_ROW(for_s, "For how long."),
    DT_ROW(text, "In what the worker waits, and for which workers."))
DT_ROWS(WorkerStatus,
    DT_ROW(id, "The worker's id."),
    DT_ROW(rank, "A member's rank."),
    DT_ROW(host, "Its host."),
    DT_ROW(slot, "Its place on the host."),
    DT_ROW(state, "SEEN, PREPARING, STARTING, WARM, MEMBER, LEAVING or STOPPING."),
    DT_ROW(why, "Why it does not go on."),
    DT_ROW(leaves_next, "It is a member, and not of the next epoch."),
    DT_ROW(opened, "It has opened a kvstore."),
    DT_ROW(pid, "Its process on the host."),
    DT_ROW(progress, "How far it is."),
    DT_ROW(steps_per_s, "Steps a second, lately.", "worker_steps_per_second"),
    DT_ROW(resident_bytes, "Resident memory of the worker and its children.",
           "worker_resident_bytes"),
    DT_ROW(output_age_s, "Time since its last output.", "worker_output_age_seconds"),
    DT_ROW(own_step_s, "The worker's own work for a step, lately.", "worker_own_step_seconds"),
    DT_ROW(waits_share, "Share of its time that its calls of the store block."),
    DT_ROW(waited_s, "How long the worker's calls of the store have blocked.",
           "worker_waited_seconds_total"),
    DT_ROW(slowest, "The others wait for it: how slow it is."),
    DT_ROW(stalls, "It makes no step."),
    DT_ROW(waits, "It waits in a standstill."),
    DT_ROW(values, "What its program reports (dtkv_report)."),
    DT_ROW(texts, "What its program reports in words (dtkv_report_text)."),
    DT_ROW(gpus, "Numbers of the GPUs that it sees."))
DT_ROWS(ServerStatus,
    DT_ROW(id, "The server's id."),
    DT_ROW(host, "Its host."),
    DT_ROW(state, "starting, listening or silent."),
    DT_ROW(address, "Where it listens."),
    DT_ROW(port, "Its port there."),
    DT_ROW(pid, "Its process on the host."),
    DT_ROW(resident_bytes, "Resident memory of the server.", "server_resident_bytes"),
    DT_ROW(silent_s, "Time since the server's last report.", "server_silence_seconds"),
    DT_ROW(process, "What it does while it is silent, by its kernel."),
    DT_ROW(device, "cpu, or a CUDA device: cuda:0."),
    DT_ROW(device_note, "The device's name, or why there is none."),
    DT_ROW(in_place, "Contributions that it read in the device memory of their worker.",
           "server_in_place_total"))
DT_ROWS(LeavingStatus,
    DT_ROW(why, "Why."),
    DT_ROW(in_s, "In how long; null: at no known time."),
    DT_ROW(text, "What becomes of the workers and servers."))
DT_ROWS(HostStatus,
    DT_ROW(host, "As host_worker has it."),
    DT_ROW(wanted, "Workers that it should have."),
    DT_ROW(beyond_limit, "Workers beyond --max-workers."),
    DT_ROW(link, "The link to its agent: none, attaching, up or down."),
    DT_ROW(life, "Its sign of life: alive, suspect or lost."),
    DT_ROW_IF(is_known, via, "How it is reached, if not as the others."),
    DT_ROW_IF(is_known, gpus, "The gpus= of its line."),
    DT_ROW_IF(is_known, empty_places, "Places of members that left."),
    DT_ROW_IF(is_known, prepared, "It has passed its checks."),
    DT_ROW_IF(is_known, cooling_until_s, "Time to its next try."),
    DT_ROW_IF(is_known, given_up, "It has used up --max-restarts."),
    DT_ROW_IF(is_known, why, "The last failure."),
    DT_ROW_IF(is_known, last_death, "Of a worker there, which was started again."),
    DT_ROW_IF(is_known, check, "What failed: reach, preflight, prepare, start or run."),
    DT_ROW_IF(is_known, attempts, "Failed tries in a row."),
    DT_ROW_IF(is_known, restarts, "Restarts after deaths there."),
    DT_ROW_IF(is_known, leaving, "It goes away."),
    DT_ROW_IF(has_command, reach_command, "Where the check is reach: to try by hand."))
DT_ROWS(GpuStatus,
    DT_ROW(host, "The GPU's host."),
    DT_ROW(index, "Its number; null: there are only the host and its driver's trouble."),
    DT_ROW(trouble, "Its faults, a sentence each."),
    DT_ROW_IF(is_known, uuid, "Its unique id."),
    DT_ROW_IF(is_known, name, "Its model."),
    DT_ROW_IF(is_known, workers, "Ids of the workers that see it."),
    DT_ROW_IF(is_known, busy_percent, "How busy the GPU is.", "gpu_busy_ratio", 0.01),
    DT_ROW_IF(is_known, memory_used, "The GPU's memory in use.", "gpu_memory_used_bytes"),
    DT_ROW_IF(is_known, memory_total, "The GPU's memory.", "gpu_memory_size_bytes"),
    DT_ROW_IF(is_known, temperature_c, "The GPU's temperature.", "gpu_temperature_celsius"),
    DT_ROW_IF(is_known, power_w, "The GPU's power.", "gpu_power_watts"),
    DT_ROW_IF(is_known, ecc_recent, "Uncorrected errors since the driver was loaded."),
    DT_ROW_IF(is_known, ecc_ever, "Uncorrected errors in its life."),
    DT_ROW_IF(is_known, retired_pages, "Retired pages of its memory."),
    DT_ROW_IF(is_known, remapped_rows, "Remapped rows of its memory."),
    DT_ROW_IF(is_known, xid_errors, "Errors of the driver since the job began.",
              "gpu_xid_errors_total"),
    DT_ROW_IF(is_known, last_xid, "The last one's number (Xid); a program's error only if there was no other."),
    DT_ROW_IF(is_known, held_back, "Why its clocks are reduced: NVML's bits."))
DT_ROWS(StandstillStatus,
    DT_ROW(for_s, "For how long."),
    DT_ROW(text, "In what each worker waits, and for which workers."),
    DT_ROW(ends_in_s, "In how long the job ends (--hang-timeout)."))
DT_ROWS(GoodputStatus,
    DT_ROW(share, "Share of the members' time that was not lost.", "goodput_ratio"),
    DT_ROW(worker_s, "The members' time.", "worker_seconds_total"),
    DT_ROW(lost_s,
           "The lost time by its cause: boundary (the slowest), join, leave, death, server, "
           "below-min-workers, supervisor, server recovery, restart (of a group), standstill, "
           "hang."),
    DT_ROW(text, "All of it in a line."))
DT_ROWS(BalanceStatus,
    DT_ROW(share, "Share of their time that is their own work."),
    DT_ROW(text, "The share, and the slow worker."))
DT_ROWS(CheckpointStatus,
    DT_ROW(every, "--checkpoint-every, in epochs."),
    DT_ROW(interval_s, "--checkpoint-interval."),
    DT_ROW(newest, "Epoch of the newest checkpoint.", "checkpoint_epoch"),
    DT_ROW(bytes, "Size of the newest checkpoint.", "checkpoint_size_bytes"),
    DT_ROW(writing, "Epoch of the one that is being written."),
    DT_ROW(trouble, "Why the last one was given up."),
    DT_ROW(none_because, "That there is no place for one, and why."))
DT_ROWS(RefusedStatus,
    DT_ROW(why, "Why."))
DT_ROWS(FileStatus,
    DT_ROW(path, "The file."),
    DT_ROW(accepted, "Its hosts when it was accepted last, one for each worker."),
    DT_ROW(base, "Hosts of the launch, which it may not remove, and what else holds for them."),
    DT_ROW(kept, "Hosts of the launch that it lacks: their workers stay."),
    DT_ROW(beyond_limit, "Hosts beyond --max-workers, one for each worker."),
    DT_ROW(refused, "The present content is refused."))
DT_ROWS(RollbackStatus,
    DT_ROW(to_epoch, "To that of this epoch."),
    DT_ROW(why, "Why."))
DT_ROWS(KeptOutStatus,
    DT_ROW(by, "server 0, agent of HOST, or control socket."),
    DT_ROW(refused, "Connections of strangers.", "refused_connections_total"),
    DT_ROW(dropped, "Connections that ended because a frame was invalid.",
           "dropped_connections_total"),
    DT_ROW(fenced, "Requests of workers that are no members.", "fenced_requests_total"))
DT_ROWS(FleetStatus,
    DT_ROW(provider, "Who has the machines: Slurm, or the program of --fleet."),
    DT_ROW(text, "2 asked for, 1 pending (Priority)."),
    DT_ROW(trouble, "What is in the way."))
DT_ROWS(JournalStatus,
    DT_ROW(waits_s, "For how long nothing is decided because the journal's disk has no room.",
           "journal_wait_seconds"),
    DT_ROW(trouble, "Why that is so, or that little room is left."))
DT_ROWS(VolumeStatus,
    DT_ROW(stalled_s, "For how long the shared volume has not answered.", "volume_stall_seconds"),
    DT_ROW(queue_length, "Requests and output that wait for the shared volume.",
           "volume_queue_requests"),
    DT_ROW(queue_bytes, "Bytes of output that wait for the shared volume.", "volume_queue_bytes"),
    DT_ROW(queue_age_s, "For how long the oldest of them has waited.", "volume_queue_age_seconds"),
    DT_ROW(dropped_bytes, "Bytes of output that the shared volume could not take.",
           "volume_dropped_bytes_total"),
    DT_ROW(lock_doubtful_s, "For how long the folder's lock could not be read."))
DT_ROWS(Status,
    DT_ROW(job, "The job's name."),
    DT_ROW(state, "starting, running, finishing, stopping or ended."),
    DT_ROW(elastic, "The job has --elastic-training-enabled."),
    DT_ROW(opaque, "No worker has opened a kvstore."),
    DT_ROW(uptime_s, "Time since the job began.", "uptime_seconds"),
    DT_ROW(supervisor_s, "Time since the supervisor began.", "supervisor_uptime_seconds"),
    DT_ROW(term, "Number of the supervisor's process, from 1.", "supervisor_term"),
    DT_ROW(epoch, "The present epoch.", "epoch"),
    DT_ROW(generation, "Number of the view.", "generation"),
    DT_ROW(world_size, "Workers in the view.", "world_size"),
    DT_ROW(min_workers, "--min-workers."),
    DT_ROW(max_workers, "--max-workers."),
    DT_ROW(on_change, "--on-change: refuse or restart."),
    DT_ROW(group_restarts, "Restarts of all workers as a group.", "group_restarts_total"),
    DT_ROW(waiting, "Why the next boundary waits."),
    DT_ROW(not_open, "Why nothing joins: no worker has opened a kvstore yet."),
    DT_ROW(leaving, "All hosts go away, and the job ends."),
    DT_ROW(pulse, "The progress, as this supervisor has seen it."),
    DT_ROW(checkpoint, "The checkpoints."),
    DT_ROW(rolling_back, "The job is going back to a checkpoint."),
    DT_ROW(standstill, "All members wait for each other, since 10 s or more."),
    DT_ROW(goodput, "What members waited for besides gradients."),
    DT_ROW(balance, "How evenly the members work."),
    DT_ROW(workers, "The workers."),
    DT_ROW(servers, "The servers."),
    DT_ROW(hosts, "The hosts. One on which nothing was begun has the first five fields."),
    DT_ROW(file, "host_worker."),
    DT_ROW(gpus, "The workers' hosts' GPUs. Null: the driver does not report it."),
    DT_ROW(kept_out, "Listeners that kept anything out."),
    DT_ROW(fleet, "The nodes that dtctl grow has asked for."),
    DT_ROW(journal, "The journal."),
    DT_ROW(volume, "The shared volume, and what waits for it."),
    DT_ROW(log_lines, "Lines of host_worker_log."),
    DT_ROW(log_foreign, "The file with what others had made of host_worker_log."),
    DT_ROW(logs, "The folder of the processes' output."))
// clang-format on

#undef DT_ROWS
#undef DT_ROW_IF
#undef DT_ROW

/// Calls `take` with each row of T.
template <class T, class Take>
void for_each_field(const Take& take) {
  std::apply([&](const auto&... fields) { (take(fields), ...); }, StatusRows<T>::kAll);
}

}  // namespace dt::io
