/// Memory for arrays that exist for one call. The store allocates it, so that a server of this host
/// reads and writes it in place. It is used again after the call's operation is over.
#pragma once

#include <cstddef>
#include <vector>

#include "kvstore/store.h"

namespace dt::kv {

class Blocks {
 public:
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::size_t used = 0;

    /// An array like `array`, in host memory, after the used part. The block must have room for it.
    [[nodiscard]] Array place(const Array& array);
  };

  /// The bytes that the array takes of a block.
  [[nodiscard]] static std::size_t room_for(const Array& array);
  /// A block of at least `bytes`; without memory if that is 0.
  [[nodiscard]] StoreResult<Block> take(Store& store, std::size_t bytes);
  /// Nothing uses the block any more.
  void give(Block block);

 private:
  std::vector<Block> free_;  ///< The smallest first; of equal ones the last freed.
};

}  // namespace dt::kv
