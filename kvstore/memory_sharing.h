/// A worker's memory and the servers of its host: makes memory, tells the servers of it, and gives
/// each large chunk a place in it where private memory is copied to and from.
///
/// The caller's thread; calls wait for the servers' answers.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kvstore/client.h"
#include "kvstore/client_memory.h"
#include "kvstore/key_book.h"
#include "kvstore/server_links.h"

namespace dt::kv {

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
  /// Staging places for the large chunks of new keys, where their servers share memory with us.
  /// Nothing of it is taken from the machine before it is used.
  Status stage(std::span<const KeyBook::Key> keys);
  /// Each chunk of these keys has a place that devices reach: its staging where it has one.
  Status pin(const std::vector<const KeyBook::Key*>& keys);

  /// The servers are gone, and the keys with their staging places.
  void forget_servers();
  /// Tells the new ones of what allocate() gave.
  Status share_again();

 private:
  Status share(ClientMemory& memory);

  Options options_;
  ServerLinks& links_;
  ClientMemories allocated_;
  Staging staging_;
  std::vector<cuda::PinnedMemory> pinned_;  ///< Of chunks without staging.
  std::uint32_t next_number_ = 0;
  /// Whom to tell of memory; none: everybody. A server that saw none sees no later one either.
  std::optional<std::vector<ServerLink*>> sharers_;
};

}  // namespace dt::kv
