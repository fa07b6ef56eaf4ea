#include "kvstore/worker/links/in_flight.h"

#include <algorithm>
#include <utility>

#include "core/base/result.h"

namespace dt::kv {

Request& SentRequests::add(Request request) {
  if (free_.empty()) {
    DT_CHECK(slots_.size() < std::size_t{1} << kSlotBits, "fewer chunks than that exist");
    free_.push_back(static_cast<std::uint32_t>(slots_.size()));
    slots_.emplace_back();
  }
  const std::uint32_t slot = free_.back();  // the one in the cache
  free_.pop_back();
  request.header.request = (next_++ << kSlotBits) | slot;
  return slots_[slot] = std::move(request);
}

Request* SentRequests::find(std::uint64_t number) {
  const std::uint64_t slot = number & ((std::uint64_t{1} << kSlotBits) - 1);
  if (number == 0 || slot >= slots_.size()) return nullptr;
  Request& request = slots_[slot];
  return request.header.request == number ? &request : nullptr;
}

Request SentRequests::take(Request& found) {
  const auto slot = found.header.request & ((std::uint64_t{1} << kSlotBits) - 1);
  free_.push_back(static_cast<std::uint32_t>(slot));
  Request taken = std::move(found);
  found.header.request = 0;
  return taken;
}

std::vector<Request*> SentRequests::all() {
  std::vector<Request*> sent;
  for (auto& request : slots_)
    if (request.header.request != 0) sent.push_back(&request);
  std::ranges::sort(sent, {}, [](const Request* one) { return one->header.request; });
  return sent;
}

}  // namespace dt::kv
