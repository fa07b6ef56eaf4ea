/// Whose hosts a job begins on: those of -H, those of the allocation around dtlaunch, or this
/// machine; and what is said about it. Reads nothing and asks nobody.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "core/launch/allocation.h"
#include "io/job/spec.h"
#include "launcher/cli/options.h"

namespace dt::launcher {

/// Whether an allocation is looked for.
struct AllocationWish {
  enum class How {
    kNone,
    kIfAlive,  ///< One that is over does not matter.
    kNeeded,   ///< One that is over is an error.
  };
  How how = How::kNone;
  std::optional<StarterKind> kind;  ///< Only of this kind.
};

/// By the options, the hosts file and what the environment hints at. The error is the hosts file's.
[[nodiscard]] Result<AllocationWish> allocation_wish(const Options& options,
                                                     std::string_view hosts_text,
                                                     const VariableOf& variable);

/// What is wrong with --launcher slurm or sge outside of an allocation.
[[nodiscard]] Error no_allocation(StarterKind kind);

/// The hosts that get workers, in order. `allocation`: what was found by allocation_wish().
[[nodiscard]] Result<std::vector<HostLine>> hosts_to_use(
    const Options& options, std::string_view hosts_text,
    const std::optional<Allocation>& allocation);

/// -n, or as many workers as the allocation was asked for. Errors name both numbers.
[[nodiscard]] Result<std::uint32_t> workers_to_use(const Options& options,
                                                   const std::optional<Allocation>& allocation);

/// What the job has to remember of its allocation; nothing if its hosts are reached otherwise.
[[nodiscard]] std::optional<AllocatedNodes> nodes_to_remember(
    const Options& options, const std::optional<Allocation>& allocation,
    const std::vector<NodeFacts>& nodes);

/// The line for people about the allocation of a planned job; empty if the job has none of its
/// nodes.
[[nodiscard]] std::string placement_line(const Options& options, const io::JobSpec& spec,
                                         const Allocation& allocation);

/// kUnavailable names a base host that the scheduler has taken out, and why.
[[nodiscard]] Result<void> check_nodes(const io::JobSpec& spec, const Allocation& allocation,
                                       const std::vector<NodeFacts>& nodes);

}  // namespace dt::launcher
