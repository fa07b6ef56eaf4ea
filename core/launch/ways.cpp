#include "core/launch/ways.h"

#include <algorithm>

namespace dt {

const AllocatedNode* node_of(const Host& host, const std::optional<AllocatedNodes>& allocation) {
  if (!allocation || !host.user.empty() || host.port != 0) return nullptr;
  const auto node = std::ranges::find(allocation->nodes, host.name, &AllocatedNode::name);
  return node == allocation->nodes.end() ? nullptr : &*node;
}

StarterKind way_to(const Host& host, StarterKind usual,
                   const std::optional<AllocatedNodes>& allocation) {
  if (host.via) return *host.via;
  return node_of(host, allocation) ? allocation->kind : usual;
}

}  // namespace dt
