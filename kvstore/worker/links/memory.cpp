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

std::size_t Staging::left() const {
  return memories_.empty() ? 0 : memories_.back().memory->bytes().size() - used_;
}

std::size_t Staging::to_add(std::size_t bytes) const {
  return bytes <= left() ? 0 : std::max({bytes, total_, kLeastStaging});
}

void Staging::add(ClientMemory memory) {
  used_ = 0;
  total_ += memory.memory->bytes().size();
  memories_.push_back(std::move(memory));
}

MemoryPlace Staging::take(std::size_t bytes) {
  const std::size_t taken = rounded(bytes);
  DT_CHECK(taken <= left(), "to_add() said so");
  const std::size_t offset = std::exchange(used_, used_ + taken);
  return {memories_.back().begin() + offset, memories_.back().number, offset};
}

cuda::Status Staging::pin(const MemoryPlace& place) {
  const auto holds = [&place](const ClientMemory& memory) { return memory.number == place.memory; };
  const auto of = std::find_if(memories_.begin(), memories_.end(), holds);
  DT_CHECK(of != memories_.end(), "places stay where they are");
  if (of->pinned) return {};
  auto pinned = std::make_shared<cuda::PinnedRegistration>();
  const auto bytes = of->memory->bytes();
  const auto status = pinned->add(bytes.data(), bytes.size());
  if (status.ok()) of->pinned = std::move(pinned);
  return status;
}

}  // namespace dt::kv
