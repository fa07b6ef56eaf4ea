/// Which server loop owns which chunk. Depends only on the keys, in the order of their
/// registration, and on the servers with their loops, never on workers. Every process computes the
/// same table.
///
/// Rule: chunk by chunk in registration order, to the server with the fewest bytes so far, and
/// there to the loop with the fewest bytes; the lowest index wins a tie. Adding a key moves no
/// chunk that was placed before.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/id.h"

namespace dt {

/// An event loop of a server: the unit of ownership.
struct LoopId {
  std::uint32_t server = 0;  ///< Index in ServerId order.
  std::uint32_t loop = 0;

  friend auto operator<=>(const LoopId&, const LoopId&) = default;
};

/// A contiguous slice of a key's elements, and its owner.
struct ChunkPlace {
  std::uint64_t first = 0;  ///< Offset in elements.
  std::uint64_t count = 0;  ///< Elements.
  LoopId owner;

  friend bool operator==(const ChunkPlace&, const ChunkPlace&) = default;
};

class Layout {
 public:
  static constexpr std::uint64_t kDefaultChunkBytes = std::uint64_t{1} << 20;
  /// Where a server is reached over a network: the chunk that is being sent delays an urgent one,
  /// and a chunk's value leaves once all of it has come.
  static constexpr std::uint64_t kNetworkChunkBytes = std::uint64_t{128} << 10;

  /// `loops[s]`: number of loops of server s, each at least 1; at least one server.
  explicit Layout(std::vector<std::uint32_t> loops, std::uint64_t chunk_bytes = kDefaultChunkBytes);

  /// Places the chunks of the next key. An array of no elements has one empty chunk, so that its
  /// rounds exist.
  std::vector<ChunkPlace> add_key(std::uint64_t elements, std::uint32_t element_bytes);
  /// Bytes placed on a server so far.
  [[nodiscard]] std::uint64_t server_bytes(std::uint32_t server) const;

 private:
  LoopId place(std::uint64_t bytes);

  std::uint64_t chunk_bytes_;
  std::vector<std::vector<std::uint64_t>> loop_bytes_;  ///< [server][loop]
  std::vector<std::uint64_t> server_bytes_;
};

}  // namespace dt
