/// How each host of a job is reached, where a job may have hosts of several kinds.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/hosts.h"
#include "core/files/kind.h"

namespace dt {

/// A node of an allocation.
struct AllocatedNode {
  std::string name;
  /// What the scheduler reaches it by: a literal address or a name; empty: it was not said.
  std::string address;
};

/// The part of an allocation that a job has to remember.
struct AllocatedNodes {
  StarterKind kind = StarterKind::kSlurm;
  std::string job;  ///< The scheduler's number of it.
  std::vector<AllocatedNode> nodes;
};

/// The node that the host names; null if it names none. A user or a port are ssh's, so a host with
/// one is no node.
[[nodiscard]] const AllocatedNode* node_of(const Host& host,
                                           const std::optional<AllocatedNodes>& allocation);

/// The node that is the machine of that name: its own name, or the same up to the first dot if that
/// is so for one node alone; null if none is.
[[nodiscard]] const AllocatedNode* node_called(const AllocatedNodes& allocation,
                                               std::string_view machine);

/// By its via, else by the starter of the allocation that it is a node of, else as usual.
[[nodiscard]] StarterKind way_to(const Host& host, StarterKind usual,
                                 const std::optional<AllocatedNodes>& allocation);

/// "n9 is no node of Slurm job 41: it is reached by ssh", of a host that says nothing of its way;
/// empty: there is no allocation, or it is a node.
[[nodiscard]] std::string remark_on_way(const Host& host, StarterKind usual,
                                        const std::optional<AllocatedNodes>& allocation);

}  // namespace dt
