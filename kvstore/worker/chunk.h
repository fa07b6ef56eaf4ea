/// A worker's state of a chunk: its server loop, and the requests for it. One request at a time is
/// in flight: the next round's push waits for this round's answer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "kvstore/compute/compression.h"
#include "kvstore/protocol/layout.h"
#include "kvstore/worker/links/memory.h"
#include "kvstore/worker/links/request.h"

namespace dt::kv {

struct ChunkState {
  // Fixed.
  std::shared_ptr<const std::string> name;  ///< The key's name.
  KeyId key;
  std::uint32_t index = 0;
  ChunkPlace place;
  std::size_t bytes = 0;
  ServerLink* owner = nullptr;

  // The caller's thread.
  bool is_shared = false;   ///< Its server maps the store's memories.
  GradientEncoder encoder;  ///< The loop's.

  /// The loop's.
  class Turns {
   public:
    /// The request to send now, with its round; none: `request` waits for its turn.
    [[nodiscard]] std::optional<Request> submit(Request request);
    /// The request in flight was answered. Returns the request to send now.
    [[nodiscard]] std::optional<Request> answered(const Request& request, const Outcome& outcome);
    /// Takes out the requests that wait for a turn that will not come.
    [[nodiscard]] std::deque<Request> take_waiting();
    /// Sets the round that is open at the server: before an epoch, and when the chunk was created.
    /// The round never decreases: an answer may be older than this worker's last request.
    void advance_to(Round open) { next_ = std::max(next_, open); }

   private:
    Request begin(Request request);

    Round next_{1};
    bool is_busy_ = false;
    std::deque<Request> waiting_;
  };
  Turns turns;
};

/// A request for the chunk, without arrays.
[[nodiscard]] inline Request request_for(ChunkState& chunk, data::Type type, data::Dtype dtype) {
  return {.header = {.type = type, .dtype = dtype, .key = chunk.key, .chunk = chunk.index},
          .chunk = &chunk};
}

/// The server reads and writes the chunk's bytes in place if they lie in shared memory, or at
/// `device_place`. For other bytes, and misaligned ones, it returns true: they need staging. `from`
/// and `into` are the memories that contain the whole arrays; null: none. The chunk is shared.
[[nodiscard]] bool use_shared_memory(Request& request, const ClientMemory* from,
                                     const ClientMemory* into, const MemoryPlace& device_place);
/// What is not read or written in place is copied to and from this place.
void use_staging(Request& request, const MemoryPlace& place);

}  // namespace dt::kv
