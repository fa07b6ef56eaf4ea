#include "kvstore/server/key_sets.h"

namespace dt::kv {

void KeySets::add(WorkerId worker, KeyId key) {
  if (is_compared_) return;
  auto& keys = has_[worker];
  if (keys.size() <= key.value) keys.resize(key.value + std::size_t{1});
  keys[key.value] = true;
}

std::optional<KeyId> KeySets::lack_of(WorkerId worker, WorkerId first) const {
  const auto mine = has_.find(worker);
  const auto wanted = has_.find(first);
  if (mine == has_.end() || wanted == has_.end()) return std::nullopt;
  for (std::size_t i = 0; i < wanted->second.size(); ++i) {
    const bool is_there = i < mine->second.size() && mine->second[i];
    if (wanted->second[i] && !is_there) return KeyId(static_cast<std::uint32_t>(i));
  }
  return std::nullopt;
}

void KeySets::end_epoch(const std::vector<WorkerId>& workers) {
  arrived_.clear();
  if (is_compared_) return;
  is_compared_ = true;
  for (const WorkerId worker : workers)
    if (const auto key = lack_of(worker, workers.front()))
      lacks_.emplace(worker, Lack{*key, workers.front()});
  has_.clear();
}

std::optional<KeySets::Lack> KeySets::lack_of(WorkerId worker) const {
  const auto found = lacks_.find(worker);
  if (found == lacks_.end()) return std::nullopt;
  return found->second;
}

}  // namespace dt::kv
