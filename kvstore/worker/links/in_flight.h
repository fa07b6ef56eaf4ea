/// A connection's requests that were sent and have no answer: found by number, listed in the order
/// they were sent first, each at one address until it is answered.
///
/// Memory follows how many are unanswered at once, however long the oldest of them waits: a number
/// names the place of its request, and places are used again.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kvstore/worker/links/request.h"

namespace dt::kv {

class SentRequests {
 public:
  /// Gives the request its number, which is never 0 and never given again.
  Request& add(Request request);
  /// Null: it was answered, or never sent.
  [[nodiscard]] Request* find(std::uint64_t number);
  /// Takes out what find() found.
  [[nodiscard]] Request take(Request& found);
  [[nodiscard]] bool empty() const { return slots_.size() == free_.size(); }
  /// In the order they were sent first.
  [[nodiscard]] std::vector<Request*> all();
  /// Places for requests that there are.
  [[nodiscard]] std::size_t capacity() const { return slots_.size(); }

 private:
  /// A number is a count of requests, and below it the place: 16 million at once, and a million
  /// millions one after the other.
  static constexpr unsigned kSlotBits = 24;

  std::deque<Request> slots_;  ///< With header.request 0: free.
  std::vector<std::uint32_t> free_;
  std::uint64_t next_ = 1;
};

}  // namespace dt::kv
