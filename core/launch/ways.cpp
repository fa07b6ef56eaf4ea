#include "core/launch/ways.h"

#include <fmt/format.h>

#include <algorithm>

namespace dt {

const AllocatedNode* node_of(const Host& host, const std::optional<AllocatedNodes>& allocation) {
  if (!allocation || !host.user.empty() || host.port != 0) return nullptr;
  const auto node = std::ranges::find(allocation->nodes, host.name, &AllocatedNode::name);
  return node == allocation->nodes.end() ? nullptr : &*node;
}

const AllocatedNode* node_called(const AllocatedNodes& allocation, std::string_view machine) {
  const auto same = std::ranges::find(allocation.nodes, machine, &AllocatedNode::name);
  if (same != allocation.nodes.end()) return &*same;
  const auto short_name = [](std::string_view name) { return name.substr(0, name.find('.')); };
  const AllocatedNode* found = nullptr;
  for (const AllocatedNode& node : allocation.nodes) {
    if (machine.empty() || short_name(node.name) != short_name(machine)) continue;
    if (found) return nullptr;
    found = &node;
  }
  return found;
}

StarterKind way_to(const Host& host, StarterKind usual,
                   const std::optional<AllocatedNodes>& allocation) {
  if (host.via) return *host.via;
  return node_of(host, allocation) ? allocation->kind : usual;
}

std::string remark_on_way(const Host& host, StarterKind usual,
                          const std::optional<AllocatedNodes>& allocation) {
  if (!allocation || host.via || node_of(host, allocation)) return "";
  return fmt::format("{} is no node of {} job {}: it is reached by {}", host,
                     allocation->kind == StarterKind::kSge ? "SGE" : "Slurm", allocation->job,
                     to_text(usual));
}

}  // namespace dt
