#include "kvstore/worker/chunk.h"

#include <algorithm>
#include <utility>

namespace dt::kv {

std::optional<Request> ChunkState::Turns::submit(Request request) {
  if (!is_busy_) return begin(std::move(request));
  waiting_.push_back(std::move(request));
  return std::nullopt;
}

std::optional<Request> ChunkState::Turns::answered(const Request& request, const Outcome& outcome) {
  // A round that failed because its contributors disagree is over as well.
  const bool is_over = !outcome.error || outcome.error->code == Code::kMismatch ||
                       outcome.error->code == Code::kNonfinite;
  // While the value was copied to a device, a boundary may have set a later round.
  if (contributes(request.header.type) && is_over)
    next_ = std::max(next_, outcome.header.round.next());
  is_busy_ = false;
  if (waiting_.empty()) return std::nullopt;
  Request next = std::move(waiting_.front());
  waiting_.pop_front();
  return begin(std::move(next));
}

Request ChunkState::Turns::begin(Request request) {
  is_busy_ = true;
  request.header.round = next_;
  return request;
}

std::deque<Request> ChunkState::Turns::take_waiting() { return std::exchange(waiting_, {}); }

bool use_shared_memory(Request& request, const ClientMemory* from, const ClientMemory* into,
                       const MemoryPlace& device_place) {
  const auto is_in_place = [&](const void* data, const ClientMemory* memory, std::uint32_t& number,
                               std::uint64_t& offset) {
    if (data == device_place.at) {
      number = device_place.memory;
      offset = device_place.offset;
      return true;
    }
    const bool is_there = memory && memory->shared_with.contains(request.chunk->place.owner) &&
                          memory->offset_of(data) % data::element_bytes(request.header.dtype) == 0;
    if (!is_there) return false;
    number = memory->number;
    offset = memory->offset_of(data);
    return true;
  };
  data::SharedPlaces& places = request.places;
  if (request.from && is_in_place(request.from, from, places.in, places.in_offset))
    request.from = nullptr;
  if (request.into && is_in_place(request.into, into, places.out, places.out_offset))
    request.into = nullptr;
  request.header.flags |= data::kShared;
  request.header.payload = sizeof places;
  return request.from || request.into;
}

void use_staging(Request& request, const MemoryPlace& place) {
  request.staging = place.at;
  data::SharedPlaces& places = request.places;
  if (request.from) {
    places.in = place.memory;
    places.in_offset = place.offset;
  }
  if (request.into) {
    places.out = place.memory;
    places.out_offset = place.offset;
  }
}

}  // namespace dt::kv
