#include "kvstore/operations.h"

#include <algorithm>
#include <utility>

namespace dt::kv {

Handle Operations::begin(std::size_t parts, std::vector<std::uint32_t> memories) {
  std::lock_guard lock(mutex_);
  const Handle handle = next_++;
  auto& pending = pending_[handle];
  pending.left = parts;
  pending.memories = std::move(memories);
  return handle;
}

void Operations::finish_part(Handle handle, std::optional<StoreError> error) {
  std::lock_guard lock(mutex_);
  auto& pending = pending_.at(handle);
  if (error && !pending.error) pending.error = std::move(error);
  --pending.left;
}

bool Operations::contains(Handle handle) const {
  std::lock_guard lock(mutex_);
  return pending_.contains(handle);
}

bool Operations::is_done(Handle handle) const {
  std::lock_guard lock(mutex_);
  return pending_.at(handle).left == 0;
}

Operations::Taken Operations::take(Handle handle) {
  std::lock_guard lock(mutex_);
  auto node = pending_.extract(handle);
  Taken taken;
  taken.is_last = pending_.empty();
  if (node.mapped().error) taken.status = tl::unexpected(std::move(*node.mapped().error));
  return taken;
}

std::vector<Handle> Operations::all() const {
  std::vector<Handle> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, pending] : pending_) all.push_back(handle);
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::optional<Handle> Operations::user_of(std::uint32_t memory) const {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, pending] : pending_) {
    const auto& used = pending.memories;
    const bool uses = std::find(used.begin(), used.end(), memory) != used.end();
    if (uses && pending.left > 0) return handle;
  }
  return std::nullopt;
}

}  // namespace dt::kv
