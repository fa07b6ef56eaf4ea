#include "kvstore/api/blocks.h"

#include <algorithm>

namespace dt::kv {

namespace {

/// Arrays begin at a multiple of this many bytes, aligned for any kernel.
constexpr std::size_t kAlign = 64;

}  // namespace

std::size_t Blocks::room_for(const Array& array) {
  return (bytes_of(array) + kAlign - 1) / kAlign * kAlign;
}

Array Blocks::Block::place(const Array& array) {
  Array placed = array;
  placed.data = data + used;
  placed.place = {};
  placed.stream = nullptr;
  used += room_for(array);
  return placed;
}

StoreResult<Blocks::Block> Blocks::take(Store& store, std::size_t bytes) {
  if (bytes == 0) return Block{};
  const auto fits = std::ranges::lower_bound(free_, bytes, {}, &Block::bytes);
  if (fits != free_.end()) {
    const Block block = *fits;
    free_.erase(fits);
    return block;
  }
  const auto memory = store.allocate(bytes);
  if (!memory) return tl::unexpected(memory.error());
  return Block{static_cast<std::byte*>(*memory), bytes, 0};
}

void Blocks::give(Block block) {
  if (!block.data) return;
  block.used = 0;
  free_.insert(std::ranges::lower_bound(free_, block.bytes, {}, &Block::bytes), block);
}

}  // namespace dt::kv
