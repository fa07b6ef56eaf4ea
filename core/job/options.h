/// What a job is started with: hosts, limits and timeouts.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/id.h"
#include "core/base/time.h"
#include "core/files/hosts.h"
#include "core/job/liveness.h"
#include "core/job/membership.h"

namespace dt {

/// What a change of the wanted workers, or a death, does to a command that opens no kvstore.
enum class OnChange : std::uint8_t {
  kRefuse,   ///< Workers cannot change, and a death ends the job.
  kRestart,  ///< All workers are stopped and begin again as a new group.
};

/// What a user can set of a job's course, by dtlaunch's options of these names. The defaults are
/// here and nowhere else.
struct JobRules {
  std::uint32_t max_restarts = 3;  ///< Restarts after members' deaths, per wanted worker of a host.
  Duration restart_refill = std::chrono::seconds(600);  ///< Time without a death that forgives one.
  /// Restarts without a completed epoch between them; 0: ten, or three per worker if that is more.
  std::uint32_t max_futile_restarts = 0;
  Duration start_timeout = std::chrono::seconds(600);
  /// The user set start_timeout: it applies to a command that opens no kvstore, too.
  bool is_start_timeout_set = false;
  Duration leave_timeout = std::chrono::seconds(30);
  Duration stop_grace = std::chrono::seconds(10);  ///< --stop-timeout
  /// A server that sends no reports, and from which no worker gets data, is lost after that.
  Duration server_dead_after = std::chrono::seconds(3);
  Duration boundary_timeout = std::chrono::seconds(600);  ///< After the first one's arrival.
  /// A worker without activity that others wait for in a round is dead after that. 0: never.
  Duration hang_timeout = std::chrono::seconds(600);
  Duration orphan_timeout = std::chrono::seconds(300);
  WorkerLimits limits;
  /// A boundary waits so long for limits.least members; then the job ends.
  Duration min_workers_timeout = std::chrono::seconds(600);
  std::uint32_t checkpoint_every = 0;  ///< Epochs; 0: not by epochs.
  Duration checkpoint_interval{};      ///< Without checkpoint_every: by time; 0: no checkpoints.
  std::uint32_t keep_checkpoints = 2;  ///< How many of the newest are kept.
  Liveness::Limits liveness;
  OnChange on_change = OnChange::kRefuse;
  /// Workers on a host that goes away are stopped so long before it does.
  Duration notice_margin = std::chrono::seconds(10);
  /// The group restarts so long after the last of several edits.
  Duration change_settle = std::chrono::seconds(2);
};

struct JobOptions : JobRules {
  std::vector<Host> workers;  ///< Base workers, id 0 first.
  std::vector<Host> servers;  ///< Server 0 first; may be empty.
  /// Servers are the user's own programs: they are started and stopped, and do not know the
  /// protocol.
  bool opaque_servers = false;
  /// The master's own host, if that has a part in the job: the job ends when it goes away.
  std::optional<Host> master;
  bool needs_prepare = false;  ///< Hosts have a data check before their first worker.
  std::uint64_t seed = 0;      ///< Seed of the jitter: jobs that lose the same host retry apart.
  /// The epoch the job begins with, whatever epoch its workers pass: that of the checkpoint the
  /// servers load.
  std::optional<Epoch> first_epoch;
  /// A lost server takes the job back to its newest checkpoint; otherwise it ends the job.
  bool rolls_back = false;
  /// A user resumes the job: a server that is lost before any agent was reached ends it, and it
  /// begins again with all its workers.
  bool is_adopted = false;
  /// There is a host_worker: empty places can be filled.
  bool is_elastic = true;
};

}  // namespace dt
