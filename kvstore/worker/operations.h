/// The operations that the caller has started and not waited for, by handle. Each has many parts.
///
/// Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "kvstore/store.h"
#include "kvstore/worker/device/ends.h"
#include "kvstore/worker/links/memory.h"

namespace dt::kv {

class Operations {
 public:
  struct Uses {
    std::vector<std::uint32_t> memories;  ///< The store's memories that it reads or writes.
    std::vector<MemoryPlace> staged;      ///< Its staging; neighbours are one place.
    DeviceCalls calls;                    ///< The calls of its arrays on devices.

    void add_staged(const MemoryPlace& place);
  };
  [[nodiscard]] Handle begin(std::size_t parts, Uses uses);
  /// The copy of one part's value to an array on a device is on its stream.
  void part_is_in_stream(Handle handle);
  /// One part is done. The operation's error is the first error of a part.
  void finish_part(Handle handle, std::optional<StoreError> error, bool was_in_stream = false);
  /// False after take().
  [[nodiscard]] bool contains(Handle handle) const;
  [[nodiscard]] bool is_done(Handle handle) const;
  /// Every part is done, or the copy of its value to an array on a device is on its stream.
  [[nodiscard]] bool is_in_stream(Handle handle) const;
  [[nodiscard]] DeviceCalls calls(Handle handle) const;
  struct Taken {
    Status status;
    std::vector<MemoryPlace> staged;  ///< To be given back.
    bool is_last = false;             ///< No operation is left.
  };
  /// Removes an operation that is done.
  Taken take(Handle handle);
  /// In the order they began.
  [[nodiscard]] std::vector<Handle> all() const;
  /// An operation that is not done and uses the memory.
  [[nodiscard]] std::optional<Handle> user_of(std::uint32_t memory) const;

 private:
  struct Pending {
    std::size_t left = 0;
    std::size_t in_stream = 0;  ///< Parts of `left` that are in a stream.
    std::optional<StoreError> error;
    Uses uses;
  };

  mutable std::mutex mutex_;
  // Under mutex_:
  Handle next_ = 1;
  std::unordered_map<Handle, Pending> pending_;
};

}  // namespace dt::kv
