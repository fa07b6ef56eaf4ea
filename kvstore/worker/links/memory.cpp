#include "kvstore/worker/links/memory.h"

#include <algorithm>
#include <utility>

#include "core/base/result.h"

namespace dt::kv {

namespace {

constexpr std::size_t kAlign = 64;
constexpr std::size_t kLeastStaging = std::size_t{4} << 20;

}  // namespace

void ClientMemories::add(ClientMemory memory) {
  const std::byte* begin = memory.begin();
  by_begin_.emplace(begin, std::move(memory));
}

const ClientMemory* ClientMemories::holding(const void* data, std::size_t size) const {
  auto after = by_begin_.upper_bound(static_cast<const std::byte*>(data));
  if (after == by_begin_.begin()) return nullptr;
  const ClientMemory& memory = std::prev(after)->second;
  return memory.memory->holds(data, size) ? &memory : nullptr;
}

const ClientMemory* ClientMemories::beginning_at(const void* begin) const {
  const auto found = by_begin_.find(static_cast<const std::byte*>(begin));
  return found == by_begin_.end() ? nullptr : &found->second;
}

void ClientMemories::forget_servers() {
  for (auto& [begin, memory] : by_begin_) memory.shared_with.clear();
}

std::vector<ClientMemory*> ClientMemories::all() {
  std::vector<ClientMemory*> all;
  for (auto& [begin, memory] : by_begin_) all.push_back(&memory);
  return all;
}

ClientMemory ClientMemories::take(const void* begin) {
  auto node = by_begin_.extract(static_cast<const std::byte*>(begin));
  DT_CHECK(!node.empty(), "the caller looked before");
  return std::move(node.mapped());
}

std::size_t Staging::rounded(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

std::size_t Staging::expect(std::size_t bytes) {
  expected_ += bytes;
  return expected_ <= total_ ? 0 : to_add(expected_ - total_);
}

std::size_t Staging::to_add(std::size_t bytes) const {
  return std::max({rounded(bytes), std::min(total_, largest_step_), kLeastStaging});
}

void Staging::add(ClientMemory memory) {
  const std::uint64_t size = memory.bytes().size();
  total_ += size;
  auto& part = parts_.emplace_back();
  part.memory = std::move(memory);
  part.free.emplace(0, size);
}

std::vector<ClientMemory*> Staging::all() {
  std::vector<ClientMemory*> all;
  for (Part& part : parts_) all.push_back(&part.memory);
  return all;
}

MemoryPlace Staging::take(std::size_t bytes, std::optional<LoopId> server) {
  const std::uint64_t wanted = rounded(bytes);
  for (Part& part : parts_) {
    if (server && !part.memory.shared_with.contains(*server)) continue;
    const auto fits = [wanted](const auto& block) { return block.second >= wanted; };
    const auto found = std::find_if(part.free.begin(), part.free.end(), fits);
    if (found == part.free.end()) continue;
    const auto [offset, size] = *found;
    part.free.erase(found);
    if (size > wanted) part.free.emplace(offset + wanted, size - wanted);
    part.peak = std::max(part.peak, offset + wanted);
    return {part.memory.begin() + offset, part.memory.number, offset, wanted};
  }
  return {};
}

void Staging::give_back(const MemoryPlace& place) {
  const auto is_it = [&place](const Part& part) { return part.memory.number == place.memory; };
  const auto part = std::find_if(parts_.begin(), parts_.end(), is_it);
  if (part == parts_.end()) return;
  const auto here = part->free.emplace(place.offset, place.bytes).first;
  const auto after = std::next(here);
  if (after != part->free.end() && here->first + here->second == after->first) {
    here->second += after->second;
    part->free.erase(after);
  }
  if (here == part->free.begin()) return;
  const auto before = std::prev(here);
  if (before->first + before->second != here->first) return;
  before->second += here->second;
  part->free.erase(here);
}

std::vector<ClientMemory> Staging::trim() {
  std::vector<ClientMemory> unused;
  for (Part& part : parts_) {
    const std::uint64_t size = part.memory.bytes().size();
    const auto last = part.free.empty() ? part.free.end() : std::prev(part.free.end());
    const bool ends_free = last != part.free.end() && last->first + last->second == size;
    const std::uint64_t in_use = ends_free ? last->first : size;
    part.touched = std::max(part.touched, part.peak);
    const std::uint64_t wanted = std::max({part.peak, part.last_peak, in_use});
    if (!part.has_pages()) {
      if (wanted == 0) unused.push_back(std::exchange(part.memory, {}));
    } else if (wanted < part.touched) {
      part.memory.memory->discard(wanted, part.touched - wanted);
      part.touched = wanted;
    }
    part.last_peak = std::exchange(part.peak, in_use);
  }
  for (const ClientMemory& memory : unused) total_ -= memory.bytes().size();
  std::erase_if(parts_,
                [](const Part& part) { return !part.memory.memory && !part.memory.on_device; });
  return unused;
}

void Staging::forget_servers() {
  for (Part& part : parts_) {
    part.free = {{0, part.memory.bytes().size()}};
    part.memory.shared_with.clear();
    part.memory.number = data::SharedPlaces::kNowhere;  // no place of before is given back
  }
}

std::uint64_t Staging::bytes() const {
  std::uint64_t all = 0;
  for (const Part& part : parts_)
    all += part.has_pages() ? std::max(part.touched, part.peak) : part.memory.bytes().size();
  return all;
}

}  // namespace dt::kv
