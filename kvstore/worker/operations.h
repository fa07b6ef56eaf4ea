/// What the caller handed over and has not taken back: operations of many parts each, by handle.
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

namespace dt::kv {

class Operations {
 public:
  struct Uses {
    std::vector<std::uint32_t> memories;  ///< Those of the store's own that it reads or writes.
    DeviceCalls calls;                    ///< Of its arrays that devices reach.
  };
  [[nodiscard]] Handle begin(std::size_t parts, Uses uses);
  /// One part's value is on its way to an array on a device.
  void part_is_in_stream(Handle handle);
  /// One part is done. The first error of them is the operation's.
  void finish_part(Handle handle, std::optional<StoreError> error, bool was_in_stream = false);
  /// False for what was taken already.
  [[nodiscard]] bool contains(Handle handle) const;
  [[nodiscard]] bool is_done(Handle handle) const;
  /// Every part is done, or its value is on its way to an array on a device.
  [[nodiscard]] bool is_in_stream(Handle handle) const;
  [[nodiscard]] DeviceCalls calls(Handle handle) const;
  struct Taken {
    Status status;
    bool is_last = false;  ///< No operation is left.
  };
  /// Takes one that is done out.
  Taken take(Handle handle);
  /// In the order they began.
  [[nodiscard]] std::vector<Handle> all() const;
  /// One that is not done and uses the memory.
  [[nodiscard]] std::optional<Handle> user_of(std::uint32_t memory) const;

 private:
  struct Pending {
    std::size_t left = 0;
    std::size_t in_stream = 0;  ///< Of `left`.
    std::optional<StoreError> error;
    Uses uses;
  };

  mutable std::mutex mutex_;
  // Under mutex_:
  Handle next_ = 1;
  std::unordered_map<Handle, Pending> pending_;
};

}  // namespace dt::kv
