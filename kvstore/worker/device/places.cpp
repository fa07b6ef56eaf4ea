#include "kvstore/worker/device/places.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace dt::kv {

namespace {

constexpr std::size_t kLeastMemory = std::size_t{4} << 20;
/// Beyond this size memories grow in number, not in size: unused device memory is lost to others.
constexpr std::size_t kLargestStep = std::size_t{256} << 20;

}  // namespace

DevicePlaces::Memory* DevicePlaces::with_room(int device, std::size_t bytes) {
  const auto of_device = memories_.find(device);
  if (of_device == memories_.end()) return nullptr;
  for (auto& one : of_device->second)
    if (Staging::rounded(bytes) <= one.memory->size() - one.used) return &one;
  return nullptr;
}

std::size_t DevicePlaces::to_add(int device, std::size_t bytes) const {
  std::size_t before = 0;
  if (const auto of_device = memories_.find(device); of_device != memories_.end())
    for (const auto& one : of_device->second) before += one.memory->size();
  return std::max({bytes, std::min(before, kLargestStep), kLeastMemory});
}

DevicePlaces::Memory& DevicePlaces::add(int device, std::unique_ptr<SharedDeviceMemory> memory) {
  auto& added = memories_[device].emplace_back();
  added.memory = std::move(memory);
  return added;
}

MemoryPlace DevicePlaces::take(int device, Memory& memory, std::size_t bytes) {
  const std::size_t offset = std::exchange(memory.used, memory.used + Staging::rounded(bytes));
  return {memory.memory->begin() + offset, memory.number, offset, device};
}

void DevicePlaces::drop(int device, const Memory& memory) {
  auto& of_device = memories_[device];
  std::erase_if(of_device, [&memory](const Memory& one) { return &one == &memory; });
  if (of_device.empty()) memories_.erase(device);
}

void DevicePlaces::forget_servers() {
  for (auto& [device, memories] : memories_) {
    for (auto& one : memories) {
      one.open_at.clear();
      one.used = 0;
    }
  }
}

void DevicePlaces::abandon() {
  static std::mutex mutex;
  static auto* kept = new std::vector<std::map<int, std::vector<Memory>>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::exchange(memories_, {}));
}

}  // namespace dt::kv
