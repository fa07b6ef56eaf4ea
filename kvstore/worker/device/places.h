/// Places for a worker's chunks in device memory of the store's own, which servers of its host have
/// opened. Knows memories, places and who opened what; who tells the servers is memory_sharing.h.
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

namespace dt::kv {

/// Where a chunk is copied to on a device, for the server that has opened it.
struct DevicePlace {
  std::byte* at = nullptr;  ///< Null: there is none.
  int device = 0;
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
};

/// Handed out one after the other and none taken back, until the servers change: then all are free
/// again, and the memories are told to the new servers. What was exported is not freed as long as
/// this lives.
class DevicePlaces {
 public:
  struct Memory {
    std::unique_ptr<SharedDeviceMemory> memory;
    std::uint32_t number = 0;  ///< What the servers know it by.
    std::set<LoopId> open_at;  ///< Server loops that have it open.
    std::size_t used = 0;
  };

  /// Where a place for `bytes` on the device can be had; null: a memory is to be added.
  [[nodiscard]] Memory* with_room(int device, std::size_t bytes);
  /// Size of the memory to add for places that take `bytes` together.
  [[nodiscard]] std::size_t to_add(int device, std::size_t bytes) const;
  Memory& add(int device, std::unique_ptr<SharedDeviceMemory> memory);
  /// In `memory`, which is of the device and has room.
  [[nodiscard]] static DevicePlace take(int device, Memory& memory, std::size_t bytes);
  /// A memory without places, which nobody has open.
  void drop(int device, const Memory& memory);

  [[nodiscard]] bool empty() const { return memories_.empty(); }
  /// The servers are gone, and the chunks with their places.
  void forget_servers();
  /// Somebody may have them open for ever: they are given back by the end of the process.
  void abandon();

 private:
  std::map<int, std::vector<Memory>> memories_;  ///< By device.
};

}  // namespace dt::kv
