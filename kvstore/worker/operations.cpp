#include "kvstore/worker/operations.h"

#include <algorithm>
#include <utility>

namespace dt::kv {

void Operations::Uses::add_staged(const MemoryPlace& place) {
  MemoryPlace* last = staged.empty() ? nullptr : &staged.back();
  if (last && last->memory == place.memory && last->offset + last->bytes == place.offset)
    last->bytes += place.bytes;
  else
    staged.push_back(place);
}

Handle Operations::begin(std::size_t parts, Uses uses) {
  std::lock_guard lock(mutex_);
  const Handle handle = next_++;
  auto& pending = pending_[handle];
  pending.left = parts;
  pending.uses = std::move(uses);
  return handle;
}

void Operations::part_is_in_stream(Handle handle) {
  std::lock_guard lock(mutex_);
  ++pending_.at(handle).in_stream;
}

void Operations::finish_part(Handle handle, std::optional<StoreError> error, bool was_in_stream) {
  std::lock_guard lock(mutex_);
  auto& pending = pending_.at(handle);
  if (was_in_stream) --pending.in_stream;
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

bool Operations::is_in_stream(Handle handle) const {
  std::lock_guard lock(mutex_);
  const auto& pending = pending_.at(handle);
  return pending.left == pending.in_stream;
}

DeviceCalls Operations::calls(Handle handle) const {
  std::lock_guard lock(mutex_);
  return pending_.at(handle).uses.calls;
}

Operations::Taken Operations::take(Handle handle) {
  std::lock_guard lock(mutex_);
  auto node = pending_.extract(handle);
  Taken taken{{}, std::move(node.mapped().uses.staged), pending_.empty()};
  if (node.mapped().error) taken.status = tl::unexpected(std::move(*node.mapped().error));
  return taken;
}

std::vector<Handle> Operations::all() const {
  std::lock_guard lock(mutex_);
  std::vector<Handle> all;
  for (const auto& [handle, pending] : pending_) all.push_back(handle);
  std::ranges::sort(all);
  return all;
}

std::optional<Handle> Operations::user_of(std::uint32_t memory) const {
  std::lock_guard lock(mutex_);
  for (const auto& [handle, pending] : pending_) {
    const auto& used = pending.uses.memories;
    const bool uses = std::find(used.begin(), used.end(), memory) != used.end();
    if (uses && pending.left > 0) return handle;
  }
  return std::nullopt;
}

}  // namespace dt::kv
