/// A worker's memory that servers of its host map as well: which memory contains an address, and
/// staging places for data outside of them. Knows addresses and numbers; memory_sharing.h sends the
/// messages to the servers.
///
/// The caller's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "kvstore/compute/cuda/device.h"
#include "kvstore/link/ipc_memory.h"
#include "kvstore/link/shared_memory.h"
#include "kvstore/protocol/layout.h"

namespace dt::kv {

/// One memory, and which server loops map it.
struct ClientMemory {
  std::shared_ptr<SharedMemory> memory;              ///< Null: it is `on_device`.
  std::shared_ptr<cuda::PinnedRegistration> pinned;  ///< Null: our devices cannot access `memory`.
  std::shared_ptr<SharedDeviceMemory> on_device;
  bool is_pinned_there = false;  ///< By a server that computes on a device.
  std::uint32_t number = 0;      ///< Its number in messages to the servers.
  std::set<LoopId> shared_with;

  [[nodiscard]] std::span<std::byte> bytes() const {
    return on_device ? std::span(on_device->begin(), on_device->size()) : memory->bytes();
  }
  [[nodiscard]] std::byte* begin() const { return bytes().data(); }
  [[nodiscard]] std::uint64_t offset_of(const void* inside) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(inside) - begin());
  }
};

/// Memories of one kind, by their addresses. They do not overlap.
class ClientMemories {
 public:
  void add(ClientMemory memory);
  /// The memory that contains [data, data + size); null: none. Logarithmic.
  [[nodiscard]] const ClientMemory* holding(const void* data, std::size_t size) const;
  /// The memory that begins at `begin`; null: none.
  [[nodiscard]] const ClientMemory* beginning_at(const void* begin) const;
  /// The servers that mapped them are gone.
  void forget_servers();
  [[nodiscard]] std::vector<ClientMemory*> all();
  /// Takes out the memory that begins at `begin`.
  [[nodiscard]] ClientMemory take(const void* begin);

 private:
  std::map<const std::byte*, ClientMemory> by_begin_;
};

/// A chunk's place in memory of the store's.
struct MemoryPlace {
  std::byte* at = nullptr;  ///< Null: there is none.
  std::uint32_t memory = 0;
  std::uint64_t offset = 0;
  std::size_t bytes = 0;  ///< Its size, rounded up.
};

/// Memories of one kind that the store owns, and places in them: the lowest free one first, so that
/// what is touched is as much as was under way at once. Each memory is at least as large as all
/// before it together, so that there are few, or as `largest_step` bytes.
class Staging {
 public:
  /// `largest_step`: for memory that costs something where it is not touched.
  explicit Staging(std::size_t largest_step = std::numeric_limits<std::size_t>::max())
      : largest_step_(largest_step) {}
  /// Bytes of a place for `bytes`: rounded up, so that the next place is aligned for any kernel.
  [[nodiscard]] static std::size_t rounded(std::size_t bytes);
  /// There shall be room for places of `bytes` in total beside what was expected before. Returns
  /// the size of the memory to add; 0: none.
  [[nodiscard]] std::size_t expect(std::size_t bytes);
  /// Size of the memory to add where take() found no place, and `bytes` are to be taken.
  [[nodiscard]] std::size_t to_add(std::size_t bytes) const;
  void add(ClientMemory memory);
  [[nodiscard]] std::vector<ClientMemory*> all();
  [[nodiscard]] bool empty() const { return parts_.empty(); }
  /// A place in a memory that this server loop maps (none: in any); without an address: there is no
  /// room.
  [[nodiscard]] MemoryPlace take(std::size_t bytes, std::optional<LoopId> server);
  /// Nothing uses the place any more. Places of memories that are gone are ignored.
  void give_back(const MemoryPlace& place);
  /// Gives the pages back to the system that no place had since the last call but one. Memories
  /// that are pinned or on a device have no such pages: takes out those that had no place.
  [[nodiscard]] std::vector<ClientMemory> trim();
  /// The servers are gone, and with them all places.
  void forget_servers();
  /// What this takes of the machine.
  [[nodiscard]] std::uint64_t bytes() const;

 private:
  struct Part {
    ClientMemory memory;
    std::map<std::uint64_t, std::uint64_t> free;  ///< Offset and size; neighbours are one.
    std::uint64_t touched = 0;                    ///< Pages from here on were not used.
    std::uint64_t peak = 0;                       ///< End of the highest place since trim() ...
    std::uint64_t last_peak = 0;                  ///< ... and from the call before it until then.

    /// The kernel assigns its pages when they are touched, and no device relies on them.
    [[nodiscard]] bool has_pages() const {
      return memory.memory && !memory.pinned && !memory.is_pinned_there;
    }
  };
  std::size_t largest_step_;
  std::size_t expected_ = 0;
  std::vector<Part> parts_;
  std::size_t total_ = 0;  ///< Bytes of all memories.
};

}  // namespace dt::kv
