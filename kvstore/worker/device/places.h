/// Places for a worker's chunks in device memory that the store owns and servers of its host have
/// opened. Records memories, places and which loops have a memory open; memory_sharing.h sends the
/// messages to the servers.
///
/// The caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kvstore/link/ipc_memory.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/worker/links/memory.h"

namespace dt::kv {

/// Places are handed out in order, and none is taken back until the servers change: then all are
/// free again, and the memories are announced to the new servers. Exported memory is not freed
/// while this object lives.
class DevicePlaces {
 public:
  struct Memory {
    std::unique_ptr<SharedDeviceMemory> memory;
    std::uint32_t number = 0;  ///< Its number in messages to the servers.
    std::set<LoopId> open_at;  ///< Server loops that have it open.
    std::size_t used = 0;
  };

  /// A memory on the device with room for a place of `bytes`; null: a memory must be added.
  [[nodiscard]] Memory* with_room(int device, std::size_t bytes);
  /// Size of the memory to add for places that take `bytes` together.
  [[nodiscard]] std::size_t to_add(int device, std::size_t bytes) const;
  Memory& add(int device, std::unique_ptr<SharedDeviceMemory> memory);
  /// A place in `memory`, which is on the device and has room.
  [[nodiscard]] static MemoryPlace take(int device, Memory& memory, std::size_t bytes);
  /// Frees a memory without places that no server has open.
  void drop(int device, const Memory& memory);

  [[nodiscard]] bool empty() const { return memories_.empty(); }
  /// The servers are gone, and with them the chunks and their places.
  void forget_servers();
  /// Leaves all memories allocated until the process ends: a server may still have them open.
  void abandon();

 private:
  std::map<int, std::vector<Memory>> memories_;  ///< By device.
};

}  // namespace dt::kv
