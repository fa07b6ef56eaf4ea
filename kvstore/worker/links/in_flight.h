/// A connection's requests that were sent and are not answered: found by number, listed in the
/// order in which they were first sent. A request's address stays the same until it is answered.
///
/// Memory is proportional to the number of requests unanswered at once, however long the oldest
/// waits: a number contains the slot of its request, and slots are reused.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kvstore/worker/links/request.h"

namespace dt::kv {

class SentRequests {
 public:
  /// Gives the request its number, which is never 0 and never reused.
  Request& add(Request request);
  /// Null: it was answered, or never sent.
  [[nodiscard]] Request* find(std::uint64_t number);
  /// Takes out what find() found.
  [[nodiscard]] Request take(Request& found);
  [[nodiscard]] bool empty() const { return slots_.size() == free_.size(); }
  /// In the order in which they were first sent.
  [[nodiscard]] std::vector<Request*> all();
  /// The number of slots, free ones included.
  [[nodiscard]] std::size_t capacity() const { return slots_.size(); }

 private:
  /// A number is a count of requests, shifted, plus the slot: 16 million requests at once, and
  /// 10^12 in sequence.
  static constexpr unsigned kSlotBits = 24;

  std::deque<Request> slots_;  ///< With header.request 0: free.
  std::vector<std::uint32_t> free_;
  std::uint64_t next_ = 1;
};

}  // namespace dt::kv
