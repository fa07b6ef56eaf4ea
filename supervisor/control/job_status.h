/// The status of the job (io/job/status.h), made from the machine's state and what is known
/// besides.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/time.h"
#include "core/protocol/control_messages.h"
#include "io/job/spec.h"
#include "io/job/status.h"

namespace dt {
class Job;
}

namespace dt::supervisor {

class JobFigures;

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
  std::map<std::string, std::vector<std::string>> gpu_troubles;  ///< Noted, by event and GPU.
};

/// How a host is reached, see launcher::Backend.
struct HostReach {
  bool is_up = false;   ///< Its agent is connected.
  std::string doing;    ///< What delays it.
  std::string command;  ///< Repeats it by hand.
};

struct StatusInput {
  const io::JobSpec& spec;
  const Job& job;
  const std::map<ProcessId, ProcessNotes>& processes;
  const std::map<Host, HostNotes>& hosts;
  bool stopping = false;
  Time now;          ///< The job's.
  Time figures_now;  ///< The time of `figures`, which runs while the job's time stands still.
  std::optional<std::string> file_refusal;
  const JobFigures& figures;
  KeptOut kept_out;  ///< By the control socket.
  std::function<HostReach(const Host&)> reach;
};

/// Why nothing joins an elastic job that is up for so long: no worker has opened a kvstore. Empty
/// when one has, or the job does not begin with any worker.
[[nodiscard]] std::string not_open(const Job& job, const io::JobSpec& spec, double uptime_s);

/// `known`: what the supervisor knows itself, with the job's uptime; the rest is added.
[[nodiscard]] std::string status_json(const StatusInput& in, io::Status known);

}  // namespace dt::supervisor
