/// Shares a worker's memory with the servers of its host: allocates memory, announces it to the
/// servers, and has staging places in it, to and from which large chunks in private memory are
/// copied while their operation is under way. If a chunk's array is on a device and its server
/// computes on one, the chunk has a place on the array's device.
///
/// The caller's thread; calls wait for the servers' answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/worker/client.h"
#include "kvstore/worker/device/places.h"
#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/memory.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

class ServerLinks;

class MemorySharing {
 public:
  /// All of them outlive this.
  MemorySharing(const ClientOptions& options, ServerLinks& links)
      : options_(options), links_(links) {}

  /// Memory for the caller; servers reached over TCP do not map it.
  StoreResult<void*> allocate(std::size_t bytes);
  /// Frees memory from allocate() that nothing uses any more.
  Status release(const ClientMemory& memory);
  /// The memory from allocate() that begins at `begin`; null: none.
  [[nodiscard]] const ClientMemory* allocated_at(const void* begin) const {
    return allocated_.beginning_at(begin);
  }
  /// The memory from allocate() that contains all of [data, data + size); null: none.
  [[nodiscard]] const ClientMemory* holding(const void* data, std::size_t size) const {
    return allocated_.holding(data, size);
  }
  /// Announces all memories to these newly connected links, which later keys may use.
  Status share_with(const std::set<ServerLink*>& links);
  /// Allocates staging for new keys, and marks their large chunks whose servers share memory with
  /// this worker. The kernel assigns pages when they are first used.
  Status stage(std::span<const KeyTable::Key> keys);
  /// A staging place for a request of this chunk, which is shared.
  StoreResult<MemoryPlace> staging_for(const ChunkState& chunk);
  /// The operation that used these places is over.
  void give_back(const std::vector<MemoryPlace>& places);
  /// At an epoch's boundary: staging that was not used for an epoch goes back to the system.
  void trim() { staging_.trim(); }
  /// An array of a key that is on a device.
  struct OnDevice {
    const KeyTable::Key* key = nullptr;
    std::optional<int> device;  ///< None: several of them.
    int first = 0;              ///< The device, or the first of them.
  };
  /// Gives each chunk of these arrays a place that the array's device can access: on the device
  /// (ChunkState::on_device) if the chunk's server has opened that memory, else in pinned memory,
  /// which is staging if the chunk is shared. It keeps that place.
  Status reach(const std::vector<OnDevice>& arrays);
  /// Servers may have device memory open.
  [[nodiscard]] bool has_device_places() const { return !device_places_.empty(); }
  /// Leaves device memory allocated: servers did not confirm that they closed it.
  void abandon_device_places() { device_places_.abandon(); }

  /// The servers are gone, and with them the keys and their places.
  void forget_servers();
  /// Announces all memory from allocate() to the new servers.
  Status share_again();

 private:
  Status add_staging(std::size_t bytes);
  Status share(ClientMemory& memory);
  /// Returns the links whose servers map the memory from now on.
  StoreResult<std::vector<ServerLink*>> share(ClientMemory& memory,
                                              const std::vector<ServerLink*>& asked);
  StoreResult<Queries> tell(const std::vector<ServerLink*>& asked, const data::ShareMemory& what);
  [[nodiscard]] bool wants_place(const OnDevice& array, const ChunkState& chunk) const;
  Status place_on(int device, const std::vector<ChunkState*>& chunks);
  Status open_at_servers(int device, DevicePlaces::Memory& memory);
  Status pin(const std::vector<ChunkState*>& chunks, int device);

  const ClientOptions& options_;
  ServerLinks& links_;
  ClientMemories allocated_;
  Staging staging_;
  std::vector<cuda::PinnedMemory> pinned_;  ///< Places of chunks that are not shared.
  std::uint32_t next_number_ = 0;
  /// Links over which memory is announced; none: all. A server that maps none maps no later one
  /// either.
  std::optional<std::vector<ServerLink*>> sharers_;
  std::set<LoopId> on_devices_;  ///< The loops among sharers_ that compute on a device.
  DevicePlaces device_places_;
  std::set<std::pair<int, LoopId>> refused_;  ///< Loops that refused memory of the device.
  std::set<int> full_;                        ///< Devices on which an allocation failed.
};

}  // namespace dt::kv
