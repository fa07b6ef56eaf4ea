/// The environment variables a process of the job is started with: a pure function of the job's
/// spec and of what the supervisor knows of the process.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/id.h"
#include "core/files/hosts.h"
#include "core/protocol/control_messages.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// The variable with a folder that an agent puts before those of its own PATH.
inline constexpr const char* kFirstInPath = "DT_FIRST_IN_PATH";

/// The variable with the GPUs that a CUDA program sees.
inline constexpr const char* kVisibleGpus = "CUDA_VISIBLE_DEVICES";
/// The variable by which an agent deals its host's GPUs to workers: a number, "auto", or "all".
inline constexpr const char* kGpusPerWorker = "DT_GPUS_PER_WORKER";
/// The variable with the list of those that the job may use; not set: all.
inline constexpr const char* kHostGpus = "DT_HOST_GPUS";

/// An address, and a port there on which no process of the job listens by itself.
struct Endpoint {
  std::string address;
  std::uint16_t port = 0;
};

/// What the supervisor knows of a process it is about to start.
struct ProcessFacts {
  ProcessId process;
  Host host;                      ///< With its GPUs.
  std::string address;            ///< The host's literal address: where its server binds.
  std::string secret;             ///< The job's secret, 64 hex digits.
  std::uint32_t num_workers = 0;  ///< World size, for a newcomer the predicted one.
  std::uint32_t num_servers = 0;
  Endpoint root;    ///< Kept on the first worker's host, for DMLC_PS_ROOT_*.
  Endpoint master;  ///< Kept on rank 0's host, for MASTER_*.

  bool is_activated = false;  ///< The host has the spec's activated_program().

  // Workers only. For a newcomer rank, world size and epoch are predictions.
  Rank rank;
  std::uint32_t slot = 0;              ///< Among the workers of its host; its own for life.
  std::uint32_t local_world_size = 1;  ///< Workers of its host.
  Epoch epoch;
  bool newcomer = false;
  std::uint32_t group_rank = 0;          ///< Number of its host among the hosts with workers.
  std::uint32_t group_world_size = 1;    ///< Hosts with workers.
  std::uint32_t group_restarts = 0;      ///< Restarts of all workers together before this start.
  std::uint32_t cores = 0;               ///< The machine's; 0: not known.
  std::uint32_t workers_on_machine = 1;  ///< Several hosts may be one machine.

  // Servers only.
  std::uint32_t index = 0;          ///< Among the servers; ids are given once, this is not.
  std::uint32_t index_on_host = 0;  ///< Servers of one host take successive ports.
  std::optional<Epoch> checkpoint;  ///< This job's, to begin with; none: the spec's, if any.
  bool is_scheduler = false;        ///< It is the scheduler of the spec's dmlc_roles.
};

/// Name and value, each name once, sorted. The user's --env wins over everything but DT_*: those
/// are the parts' own contract. Values may hold any bytes but NUL.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> environment(
    const io::JobSpec& spec, const ProcessFacts& facts);

}  // namespace dt::launcher
