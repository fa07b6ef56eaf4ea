/// A worker's memory and the servers of its host: makes memory, tells the servers of it, and gives
/// each large chunk a place in it where private memory is copied to and from. Chunks of arrays on a
/// device, whose server computes on one, have their place there.
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
  struct Options {
    WorkerId worker;
    Transport transport = Transport::kAuto;
    std::size_t share_from = 0;                           ///< ClientOptions::share_from
    std::function<bool(std::uint32_t server)> may_share;  ///< ClientOptions::may_share
    Duration start_limit{};
    Duration lost_limit{};
  };

  MemorySharing(Options options, ServerLinks& links)
      : options_(std::move(options)), links_(links) {}

  /// Memory for the caller; over TCP it is memory like any other.
  StoreResult<void*> allocate(std::size_t bytes);
  /// What allocate() gave and nothing uses any more.
  Status release(const ClientMemory& memory);
  /// The memory that allocate() gave at `begin`, and that holds all of an array; null: none.
  [[nodiscard]] const ClientMemory* allocated_at(const void* begin) const {
    return allocated_.beginning_at(begin);
  }
  [[nodiscard]] const ClientMemory* holding(const void* data, std::size_t size) const {
    return allocated_.holding(data, size);
  }
  /// These are connected to now: they map what later keys may name as well.
  Status share_with(const std::vector<ServerLink*>& links);
  /// Staging places for the large chunks of new keys, where their servers share memory with us.
  /// Nothing of it is taken from the machine before it is used.
  Status stage(std::span<const KeyBook::Key> keys);
  /// An array of a key that is on a device.
  struct OnDevice {
    const KeyBook::Key* key = nullptr;
    std::optional<int> device;  ///< None: several of them.
  };
  /// Each chunk of these has a place that its array's device reaches: on the device itself
  /// (ChunkState::on_device), where the chunk's server has opened that, else in pinned memory, its
  /// staging where it has one.
  Status reach(const std::vector<OnDevice>& arrays);
  /// Servers may have memory of a device open.
  [[nodiscard]] bool has_device_places() const { return !device_places_.empty(); }
  /// And have not said that they closed it.
  void abandon_device_places() { device_places_.abandon(); }

  /// The servers are gone, and the keys with their places.
  void forget_servers();
  /// Tells the new ones of what allocate() gave.
  Status share_again();

 private:
  Status share(ClientMemory& memory);
  /// Those of them that map it from now on.
  StoreResult<std::vector<ServerLink*>> share(ClientMemory& memory,
                                              const std::vector<ServerLink*>& asked);
  StoreResult<Questions> tell(const std::vector<ServerLink*>& asked, const data::ShareMemory& what);
  [[nodiscard]] bool wants_place(const OnDevice& array, const ChunkState& chunk) const;
  Status place_on(int device, const std::vector<ChunkState*>& chunks);
  Status open_at_servers(int device, DevicePlaces::Memory& memory);
  Status pin(const std::vector<ChunkState*>& chunks);

  Options options_;
  ServerLinks& links_;
  ClientMemories allocated_;
  Staging staging_;
  std::vector<cuda::PinnedMemory> pinned_;  ///< Of chunks without staging.
  std::uint32_t next_number_ = 0;
  /// Links over which memory is announced; none: all. A server that maps none maps no later one
  /// either.
  std::optional<std::vector<ServerLink*>> sharers_;
  std::set<LoopId> on_devices_;  ///< Of them, those that compute on a device.
  DevicePlaces device_places_;
  std::set<std::pair<int, LoopId>> refused_;  ///< What memory of which device these do not open.
  std::set<int> full_;                        ///< Devices that have no memory for us.
};

}  // namespace dt::kv
