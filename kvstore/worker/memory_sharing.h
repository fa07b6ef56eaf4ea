/// Shares a worker's memory with the servers of its host: allocates memory, announces it to the
/// servers, and has places in it, to and from which large chunks in private memory, and all chunks
/// of arrays on devices, are copied while their operation is under way.
///
/// The caller's thread; calls wait for the servers' answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/worker/client.h"
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
  /// Marks new keys' large chunks whose servers share memory with this worker, and has staging for
  /// them, unless a server pins it for its device. The kernel assigns pages when they are used.
  Status stage(std::span<const KeyTable::Key> keys);
  /// A staging place for a request of this chunk, which is shared. `left`: the bytes that places
  /// are to be taken for, at once, this chunk's among them.
  StoreResult<MemoryPlace> staging_for(const ChunkState& chunk, std::size_t left);
  /// Where a key's arrays on devices are.
  struct Devices {
    std::optional<int> only;  ///< None: there are several.
    int first = 0;            ///< One that the caller uses.
  };
  /// A place that these devices can access: on the only device, if the chunk's server computes on
  /// one and has opened that memory, else in pinned memory.
  StoreResult<MemoryPlace> device_place_for(const ChunkState& chunk, data::Dtype dtype,
                                            const Devices& devices, std::size_t left);
  /// The operation that used these places is over.
  void give_back(const std::vector<MemoryPlace>& places);
  /// Bytes of the machine that places take or took in this epoch. Any thread.
  struct Bytes {
    std::uint64_t staged = 0;
    std::uint64_t pinned = 0;
    std::uint64_t on_devices = 0;
    friend bool operator==(const Bytes&, const Bytes&) = default;
  };
  [[nodiscard]] Bytes bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  /// At an epoch's boundary: memory that had no place for an epoch goes back to the system; what
  /// servers may have open stays.
  void trim();
  /// Servers may have device memory open.
  [[nodiscard]] bool has_device_places() const {
    return std::ranges::any_of(on_device_, [](const auto& one) { return !one.second.empty(); });
  }
  /// Leaves device memory allocated until the process ends: servers did not confirm that they
  /// closed it.
  void abandon_device_places();

  /// The servers are gone, and with them the keys and their places.
  void forget_servers();
  /// Announces all memory from allocate() to the new servers.
  Status share_again();

 private:
  /// Beyond this size memories that cost something grow in number, not in size.
  static constexpr std::size_t kLargestStep = std::size_t{256} << 20;

  Status add_staging(std::size_t bytes);
  Status share(ClientMemory& memory);
  /// Returns the links whose servers map the memory from now on.
  StoreResult<std::vector<ServerLink*>> share(ClientMemory& memory,
                                              const std::vector<ServerLink*>& asked);
  StoreResult<Queries> tell(const std::vector<ServerLink*>& asked, const data::ShareMemory& what);
  Status unshare(const ClientMemory& memory);
  StoreResult<MemoryPlace> place_on(int device, const ChunkState& chunk, std::size_t left);
  Status open_at_servers(int device, ClientMemory& memory);
  StoreResult<MemoryPlace> pinned_place(const ChunkState& chunk, int device, std::size_t left);
  [[nodiscard]] StoreResult<MemoryPlace> found(const MemoryPlace& place, const ChunkState& chunk);
  [[nodiscard]] std::vector<Staging*> pools();
  void count();

  const ClientOptions& options_;
  ServerLinks& links_;
  ClientMemories allocated_;
  // Places of operations that are under way.
  Staging staging_{kLargestStep};     ///< In shared memory of the host.
  Staging pinned_{kLargestStep};      ///< The same for arrays on devices.
  std::map<int, Staging> on_device_;  ///< In memory of these devices.
  std::uint32_t next_number_ = 0;
  /// Links over which memory is announced; none: all. A server that maps none maps no later one
  /// either.
  std::optional<std::vector<ServerLink*>> sharers_;
  std::set<LoopId> on_devices_;  ///< The loops among sharers_ that compute on a device.
  std::set<std::pair<int, LoopId>> refused_;  ///< Loops that refused memory of the device.
  std::set<int> full_;                        ///< Devices on which an allocation failed.

  mutable std::mutex mutex_;
  Bytes bytes_;  ///< Under mutex_.
};

}  // namespace dt::kv
