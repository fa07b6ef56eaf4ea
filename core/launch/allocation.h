/// Whether this machine is part of a scheduler's allocation, and of which hosts: environment
/// variables and what the scheduler answers go in, hosts come out. Pure: who reads the environment
/// asks the scheduler, too.
///
///     Slurm  SLURM_JOB_ID, SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE; squeue says whether it lives
///     SGE    JOB_ID, the file PE_HOSTFILE, which lives as long as the job
///
/// Variables are a hint only: shells inherit them from allocations that have ended.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "core/files/kind.h"

namespace dt {

/// The value of an environment variable; nothing if it is not set.
using VariableOf = std::function<std::optional<std::string>(const std::string&)>;

/// This process is one of several that a launcher started alike: each would start the whole job.
struct LargerStep {
  bool is_speaker = false;  ///< The one of them that says why nothing is started.
  std::string why;
};
[[nodiscard]] std::optional<LargerStep> larger_step(const VariableOf& variable);

struct Allocation {
  StarterKind kind = StarterKind::kSlurm;  ///< kSlurm or kSge.
  std::string job;                         ///< The scheduler's number of it.
  /// In the scheduler's order; their slots are the tasks that were asked for, if any were.
  std::vector<HostLine> hosts;
  std::string nodes;       ///< For people: "n[1-2,7]".
  std::string slots_from;  ///< Where the slots come from, for people; empty without slots.
  std::string ends;        ///< The end of its time as squeue writes it; empty: none is known.
};

/// "Slurm job 41"
[[nodiscard]] std::string name_of(const Allocation& allocation);
/// What starts commands on its hosts: "srun".
[[nodiscard]] std::string_view starter_of(StarterKind kind);
/// One worker for each task that was asked for, else one for each host.
[[nodiscard]] std::uint32_t usual_workers(const Allocation& allocation);

/// A program's answer, or a file's content.
struct Answer {
  bool is_there = false;  ///< The program ran and ended well; the file could be read.
  std::string text;       ///< The output or content, else why there is none.
};

/// The Slurm job of the environment; nothing outside of one.
[[nodiscard]] std::optional<std::string> slurm_job(const VariableOf& variable);
/// The file of an SGE job's hosts; nothing outside of one.
[[nodiscard]] std::optional<std::string> sge_hostfile(const VariableOf& variable);

/// The folder that SGE keeps on each host of a job for as long as the job lasts; nothing outside of
/// one. Its script and what qrsh starts have variables that name it.
[[nodiscard]] std::optional<std::string> sge_job_folder(const VariableOf& variable);

/// The format that squeue is asked for with `-h -j JOB -o`.
inline constexpr const char* kSqueueFormat = "%T|%e|%N";
/// Whether squeue shows fewer jobs by a variable, or the time in another form.
[[nodiscard]] bool changes_squeue(std::string_view variable);

/// Whether the job that squeue was asked about is no more. False while that is not known.
[[nodiscard]] bool is_over(const Answer& squeue);

/// Errors are kInvalid and contain the remedy. `squeue`: the answer about slurm_job().
[[nodiscard]] Result<Allocation> slurm_allocation(const VariableOf& variable, const Answer& squeue);
/// `hostfile`: the content of sge_hostfile().
[[nodiscard]] Result<Allocation> sge_allocation(const VariableOf& variable, const Answer& hostfile);

/// Whether SGE lets the job start anything on its other hosts. `environment`: what `qconf -sp` says
/// of its parallel environment `name`; no answer is no objection.
[[nodiscard]] Result<void> check_sge_environment(const Allocation& allocation,
                                                 std::string_view name, const Answer& environment);

/// The one that is alive; nothing if none was found. Two that live are an error, and so is one that
/// does not if it is the only one.
[[nodiscard]] Result<std::optional<Allocation>> only_one(
    const std::vector<Result<Allocation>>& found);

/// A node as the scheduler knows it.
struct NodeFacts {
  std::string name;
  std::string address;  ///< What it is reached by: a literal address or a name.
  std::string state;    ///< "IDLE", "DOWN*", "MIXED+DRAIN".
  std::string reason;   ///< Why an administrator took it out; empty: nobody did.

  /// Whether steps can be started there.
  [[nodiscard]] bool is_usable() const;
};
/// The output of `scontrol show node -o`: a line for each node. Lines of another form are skipped.
[[nodiscard]] std::vector<NodeFacts> parse_nodes(std::string_view scontrol);

}  // namespace dt
