#include "kvstore/protocol/layout.h"

#include <algorithm>

#include "core/base/result.h"

namespace dt {

Layout::Layout(std::vector<std::uint32_t> loops, std::uint64_t chunk_bytes)
    : chunk_bytes_(chunk_bytes), server_bytes_(loops.size(), 0) {
  DT_CHECK(!loops.empty(), "a layout needs a server");
  DT_CHECK(chunk_bytes >= 64, "a chunk must hold some elements");
  for (auto n : loops) {
    DT_CHECK(n > 0, "a server has at least one loop");
    loop_bytes_.emplace_back(n, 0);
  }
}

LoopId Layout::place(std::uint64_t bytes) {
  const auto server = std::min_element(server_bytes_.begin(), server_bytes_.end());
  const auto s = static_cast<std::size_t>(server - server_bytes_.begin());
  const auto loop = std::min_element(loop_bytes_[s].begin(), loop_bytes_[s].end());
  // An empty chunk has a cost for its owner too: count at least a byte, so that they are spread.
  *server += std::max<std::uint64_t>(bytes, 1);
  *loop += std::max<std::uint64_t>(bytes, 1);
  return {static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(loop - loop_bytes_[s].begin())};
}

std::vector<ChunkPlace> Layout::add_key(std::uint64_t elements, std::uint32_t element_bytes) {
  DT_CHECK(element_bytes > 0, "elements have a size");
  std::vector<ChunkPlace> chunks;
  const std::uint64_t per_chunk = chunk_bytes_ / element_bytes;
  std::uint64_t first = 0;
  do {
    const std::uint64_t count = std::min(per_chunk, elements - first);
    chunks.push_back({first, count, place(count * element_bytes)});
    first += count;
  } while (first < elements);
  return chunks;
}

std::uint64_t Layout::server_bytes(std::uint32_t server) const {
  DT_CHECK(server < server_bytes_.size(), "no such server");
  return server_bytes_[server];
}

}  // namespace dt
