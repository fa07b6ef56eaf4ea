/// The arrays that several GPUs of this process have of a key: their sum to the host's memory, and
/// a value from there to all of them. Each GPU carries its own part over its own bus; between GPUs
/// NCCL does the rest (cuda/local_group.h).
///
/// One thread. Calls return when everything is done; a wait for NCCL has its deadline.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "kvstore/cuda/local_group.h"
#include "kvstore/store.h"

namespace dt::kv {

class ReplicaGroup {
 public:
  /// A key's arrays, alike in size and type, and their place in the host's memory.
  struct Key {
    std::span<const Array> arrays;
    std::byte* host = nullptr;
  };

  explicit ReplicaGroup(cuda::LocalGroup::Options options) : group_(std::move(options)) {}

  /// Whether these are for this class: each on a device of its own, at a multiple of 16 bytes.
  [[nodiscard]] static bool takes(std::span<const Array> arrays);

  /// Each key's `host` becomes the sum of its arrays, which are only read.
  Status sum(const std::vector<Key>& keys);
  /// Each key's arrays become what is at `host`.
  Status spread(const std::vector<Key>& keys);

 private:
  /// The devices of a key's arrays become the group.
  Status use(const Key& key);
  /// Device memory of `bytes`, free again when the call ends.
  StoreResult<std::byte*> scratch(int device, std::size_t bytes);
  Status start_sum(const Key& key, std::size_t offset);
  Status start_spread(const Key& key);
  /// What was put on the keys' streams is done.
  Status finish(const std::vector<Key>& keys);

  cuda::LocalGroup group_;
  std::map<int, cuda::DeviceMemory> scratch_;  ///< By device.
};

}  // namespace dt::kv
