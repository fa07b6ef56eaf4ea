/// A chunk as a worker knows it: where it lives, and the requests for it, of which one at a time is
/// on its way: the next round's push waits for this round's answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "kvstore/compute/compression.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/worker/device/places.h"
#include "kvstore/worker/links/memory.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

[[nodiscard]] constexpr bool contributes(data::Type type) {
  return type == data::Type::kPush || type == data::Type::kPushPull;
}
/// Whether requests of the type take turns; the others go out at once.
[[nodiscard]] constexpr bool takes_turns(data::Type type) {
  return contributes(type) || type == data::Type::kPull;
}

struct ChunkState {
  // Fixed.
  std::shared_ptr<const std::string> name;  ///< Of the key.
  KeyId key;
  std::uint32_t index = 0;
  ChunkPlace place;
  std::size_t bytes = 0;
  ServerLink* owner = nullptr;

  // The caller's thread.
  StagingPlace staging;
  std::byte* pinned = nullptr;  ///< `staging`, or a place of the same size, that devices reach.
  DevicePlace on_device;        ///< For arrays of its device. Only beside `staging`.
  GradientEncoder encoder;      ///< The loop's.

  /// The loop's.
  class Turns {
   public:
    /// What is to be sent now, with its round; none: `request` waits for its turn.
    [[nodiscard]] std::optional<Request> submit(Request request);
    /// The request on its way was answered. What is to be sent now.
    [[nodiscard]] std::optional<Request> answered(const Request& request, const Outcome& outcome);
    /// What waits for a turn that will not come.
    [[nodiscard]] std::deque<Request> take_waiting();
    /// The round that is open at the server: before an epoch, and when the chunk was created. Never
    /// back: an answer may be older than what this worker has done since.
    void adopt(Round open) { next_ = std::max(next_, open); }

   private:
    Request begin(Request request);

    Round next_{1};
    bool is_busy_ = false;
    std::deque<Request> waiting_;
  };
  Turns turns;
};

/// The chunk's bytes are read and written where they lie in shared memory, the chunk's staging and
/// its place on a device included; those that lie elsewhere, or askew for the server's arithmetic,
/// are copied to and from the chunk's staging, which it has. `from` and `into` are the memories
/// that the whole arrays lie in; null: none.
void use_shared_memory(Request& request, const ClientMemory* from, const ClientMemory* into);

}  // namespace dt::kv
