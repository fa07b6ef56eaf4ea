#include "kvstore/worker/device/group_order.h"

#include <utility>

namespace dt::kv {

namespace {

/// Alignment in bytes of arrays in scratch memory.
constexpr std::size_t kAligned = 256;

}  // namespace

GroupOrder::Id GroupOrder::add(Item item) {
  const Id id = ++last_;
  const Rank rank{-item.priority, item.is_sum, id};
  item.bytes = (item.bytes + kAligned - 1) / kAligned * kAligned;
  waiting_.emplace(rank, Waiting{std::move(item), false});
  ranks_.emplace(id, rank);
  return id;
}

void GroupOrder::set_ready(Id id) { waiting_.at(ranks_.at(id)).is_ready = true; }

std::optional<GroupOrder::Start> GroupOrder::next() {
  bool are_held[2] = {false, false};  // values, sums
  for (auto at = waiting_.begin(); at != waiting_.end(); ++at) {
    const Item& item = at->second.item;
    if (!at->second.is_ready || are_held[item.is_sum ? 1 : 0]) continue;
    if (is_under_way() && under_way_.begin()->second.item.devices != item.devices) return {};
    const auto offset = room_for(item);
    if (!offset) {
      are_held[item.is_sum ? 1 : 0] = true;
      continue;
    }
    const Start start{std::get<Id>(at->first), *offset};
    if (item.is_sum && item.bytes > 0) scratch_.emplace(*offset, item.bytes);
    if (!item.is_sum) value_bytes_ += item.bytes;
    under_way_.emplace(start.id, UnderWay{std::move(at->second.item), *offset});
    ranks_.erase(start.id);
    waiting_.erase(at);
    return start;
  }
  return {};
}

std::optional<std::size_t> GroupOrder::room_for(const Item& item) const {
  if (!item.is_sum) {
    if (value_bytes_ > 0 && value_bytes_ + item.bytes > window_) return {};
    return 0;
  }
  if (scratch_.empty()) return 0;
  std::size_t free = 0;
  for (const auto& [offset, bytes] : scratch_) {
    if (offset - free >= item.bytes) return free;
    free = offset + bytes;
  }
  if (free <= window_ && item.bytes <= window_ - free) return free;
  return {};
}

void GroupOrder::remove(Id id) {
  if (const auto waits = ranks_.find(id); waits != ranks_.end()) {
    waiting_.erase(waits->second);
    ranks_.erase(waits);
    return;
  }
  const auto found = under_way_.find(id);
  if (found == under_way_.end()) return;
  const auto& [item, offset] = found->second;
  if (item.is_sum && item.bytes > 0) scratch_.erase(offset);
  if (!item.is_sum) value_bytes_ -= item.bytes;
  under_way_.erase(found);
}

}  // namespace dt::kv
