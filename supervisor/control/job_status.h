/// The status object that `dtctl status --json` prints and the control socket answers.
///
///     {"job","state":"starting|running|finishing|stopping|ended","elastic","opaque","term",
///      "generation","epoch":n|null,"world_size","min_workers","max_workers","uptime_s":the job's,
///      "supervisor_s":this term's,
///      "waiting":"why the next boundary waits",
///      "leaving":as of a host: all hosts go away, and the job ends; or null,
///      "pulse":{"text":"all of it in a line","epoch_s":n|null,"boundary_age_s":n|null,
///               "checkpoint_age_s":n|null,"restarts","checkpoints":that were completed,
///               "boundaries":from one epoch to the next,"boundaries_s":their sum, each from its
///               first arrival to its last release,"last_boundary_s":n|null}, as this supervisor
///               has seen it,
///      "on_change":"refuse",        --on-change
///      "group_restarts":0,          --on-change restart: groups after the first one
///      "not_open":"why nothing joins: no worker has opened a kvstore yet",
///      "workers":[{"id","rank":n|null,"host","state","why","pid","opened",
///                  "leaves_next":it is a member, and not of the next epoch,
///                  "steps_per_s":n|null,"resident_bytes":n|null,"output_age_s":n|null,
///                  "progress":{"epoch":n|null,"step":n|null,"age_s":n|null,
///                              "steps_in_epoch":n|null,"samples_total":n|null,
///                              "samples_per_s":n|null}|null,
///                  "values":{"name":figure that its program reports (dtkv_report)},
///                  "stalls":{"for_s","waited_for","process":"what it does, by its kernel"}|null,
///                  "own_step_s":n|null,"waits_share":n|null: its own work for a step and the share
///                      of its time in which calls of the store blocked, over 10 s or more,
///                  "waited_s":n|null: how long these have blocked since its begin,
///                  "slowest":the others wait for it: "102 ms of own work ..."|null,
///                  "waits":in a standstill: {"for_s","text":"in 0.weight for worker 1"}|null,
///                  "gpus":[index...]}],
///      "servers":[{"id","host","state":"starting|listening|silent","address","port","pid",
///                  "resident_bytes":n|null,
///                  "silent_s":n|null,"process":"what it does then, by its kernel",
///                  "device":"cpu|cuda:0","device_note":"its name, or why there is none"}],
///      "hosts":[{"host","wanted","beyond_limit":workers beyond --max-workers,"link",
///                "empty_places":members left by themselves,"life":"alive|suspect|lost","prepared",
///                "cooling_until_s":n|null,"given_up","why",
///                "check":"reach|preflight|prepare|start|run","attempts","restarts",
///                "leaving":{"why","in_s":n|null: at no known time,"text":"what becomes of its
///                           workers and servers"}|null,
///                "reach_command":only where the check is "reach": to try by hand}],
///      "checkpoint":{"every":epochs,"interval_s","newest":epoch|null,"bytes":of the newest|null,
///                    "writing":epoch|null,
///                    "trouble":"why the last one was given up",
///                    "none_because":"that there is no place for one, why, and what that means"},
///      "rolling_back":{"to_epoch","why"}|null,
///      "file":{"path","accepted":["host"...],"kept":["host"...],
///              "beyond_limit":["host"...],"refused":{"why"}|null},
///      "standstill":all members wait for each other, since 10 s or more:
///                   {"for_s","text","ends_in_s":n|null}|null,
///      "goodput":{"share","worker_s","lost_s":{cause:n},"text"}|null, the job's: what members
///                waited for besides gradients, in worker-seconds, 0 if nothing: boundary (the
///                slowest), join, leave, death, below-min-workers, supervisor, server,
///                server recovery, restart (of a group), standstill, hang,
///      "balance":{"share":of the members' time that is their own work,"text"}|null,
///      "gpus":[{"host","index":n|null,"uuid","name","workers":[id...],"busy_percent",
///               "memory_used","memory_total":bytes,"temperature_c","power_w","ecc_recent",
///               "ecc_ever","retired_pages","remapped_rows","xid_errors","last_xid",
///               "held_back":NVML's bits,"trouble":["sentence"...]}]
///                 null: the driver does not report it; index null: what holds for all of the host,
///      "kept_out":[{"by":"server 0|agent of HOST|control socket","refused","dropped","fenced"}]
///                 of those that kept out anything (core/protocol/control_messages.h, KeptOut),
///      "fleet":{"text":"2 asked for, 1 pending (Priority)","trouble"}|null: holders of dtctl grow,
///      "journal":{"waits_s","trouble"}, for how long its disk has had no room (0: it has),
///      "volume":{"stalled_s":since it was given the present request,"dropped_bytes",
///                "queue_length":requests and files' output that wait,"queue_bytes":of output,
///                "queue_age_s":of the oldest},"log_lines":n,
///      "log_foreign":"file with what others had made of host_worker_log"|"","logs":"folder"}
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "io/job/spec.h"

namespace dt {
class Job;
}

namespace dt::supervisor {

class Pulse;

/// The supervisor's notes on a process, besides the machine's state.
struct ProcessNotes {
  std::int32_t pid = 0;
  KeptOut kept_out;    ///< Connections that a server kept out.
  std::string device;  ///< A server's device, once it listens (core/protocol/control_messages.h,
                       ///< ServerReady).
  std::string device_note;
  std::string last_words;  ///< Why it gave up, in its own words.
  bool is_held = false;    ///< It has to wait: its output comes faster than the volume takes it.
};

/// What the agent of a host has reported of itself and its machine.
struct HostNotes {
  KeptOut kept_out;
  GpuHealth gpus;
  std::map<std::string, std::vector<std::string>> gpu_troubles;  ///< Noted, by GPU.
};

/// How a host is reached, see launcher::Backend.
struct HostReach {
  bool is_up = false;   ///< Its agent is connected.
  std::string doing;    ///< What delays it.
  std::string command;  ///< Repeats it by hand.
};

/// The shared volume and what waits for it.
struct VolumeFacts {
  double stalled_s = 0;
  std::uint64_t dropped_bytes = 0;
  std::size_t queue_length = 0;  ///< Requests, and appends of output.
  std::size_t queue_bytes = 0;   ///< Bytes of output.
  double queue_age_s = 0;
  double lock_doubtful_s = 0;  ///< See LockDoubtful; 0: it is not.
};

struct StatusInput {
  const io::JobSpec& spec;
  const Job& job;
  const std::map<ProcessId, ProcessNotes>& processes;
  const std::map<Host, HostNotes>& hosts;
  std::uint64_t term = 0;
  bool stopping = false;
  Time now;                 ///< The job's.
  Time pulse_now;           ///< The pulse's time, which runs while the job's time stands still.
  double uptime_s = 0;      ///< The job's.
  double supervisor_s = 0;  ///< The supervisor's, of this term.
  std::optional<std::string> file_refusal;
  double journal_waits_s = 0;   ///< Nothing is decided: the journal's disk has no room.
  std::string journal_trouble;  ///< Why that is so, or that little room is left; or empty.
  VolumeFacts volume;
  std::string foreign_log;  ///< JobFiles::foreign_log()
  const Pulse& pulse;
  KeptOut kept_out;             ///< By the control socket.
  const nlohmann::json& fleet;  ///< FleetDesk::status()
  std::function<HostReach(const Host&)> reach;
};

/// Why nothing joins an elastic job that is up for so long: no worker has opened a kvstore. Empty
/// when one has, or the job does not begin with any worker.
[[nodiscard]] std::string not_open(const Job& job, const io::JobSpec& spec, double uptime_s);

[[nodiscard]] std::string status_json(const StatusInput& in);

}  // namespace dt::supervisor
