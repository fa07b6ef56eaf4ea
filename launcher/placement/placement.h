/// Whose hosts a job begins on: those of a list (-H, -w), those of the allocation around this
/// process, or this machine; and what is said about it. Found once, before anything is planned.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/files/hosts.h"
#include "core/launch/allocation.h"
#include "io/job/spec.h"

namespace dt::launcher {

/// What a command line says of hosts.
struct PlacementWish {
  std::string launcher;         ///< The value of --launcher; empty: not given.
  std::string list;             ///< What errors call the list of hosts; empty: there is none.
  std::vector<HostLine> lines;  ///< What the list names.
};

/// What is asked of the world, and may take half a minute; allocation_probe.h has the real one.
struct Surroundings {
  VariableOf variable;
  /// The allocation of this kind, or with none the only one that lives; nothing outside of one.
  std::function<Result<std::optional<Allocation>>(std::optional<StarterKind>)> allocation;
  /// The nodes as the scheduler knows them; empty where it does not say.
  std::function<std::vector<NodeFacts>(const Allocation&)> nodes;
};

struct Placement {
  std::string list;                      ///< As in the wish.
  std::vector<HostLine> lines;           ///< The hosts that may get workers, in order.
  std::optional<Allocation> allocation;  ///< Around this process, where its nodes are meant.
  std::vector<NodeFacts> nodes;          ///< Its nodes.
  /// `lines` are its nodes.
  bool gives_hosts = false;
  /// What the job has to remember of it; nothing if its hosts are reached otherwise.
  std::optional<AllocatedNodes> remembered;
};

/// Errors are those of an allocation that is over, or does not answer, and was needed.
[[nodiscard]] Result<Placement> find_placement(const PlacementWish& wish,
                                               const Surroundings& around);

/// Whether hosts are reached by it inside of an allocation alone.
[[nodiscard]] constexpr bool is_scheduler(std::optional<StarterKind> kind) {
  return kind == StarterKind::kSlurm || kind == StarterKind::kSge;
}
/// What is wrong with --launcher slurm or sge outside of an allocation.
[[nodiscard]] Error no_allocation(StarterKind kind);

/// `wanted` (-n), or where it is 0 as many workers as the allocation was asked for. Errors name
/// both numbers.
[[nodiscard]] Result<std::uint32_t> workers_to_use(const Placement& placement,
                                                   std::uint32_t wanted);

/// The line for people about the allocation of a planned job; empty if the job has none of its
/// nodes.
[[nodiscard]] std::string placement_line(const Placement& placement, const io::JobSpec& spec);

/// kUnavailable names a base host that the scheduler has taken out, and why.
[[nodiscard]] Result<void> check_nodes(const Placement& placement, const io::JobSpec& spec);

}  // namespace dt::launcher
