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

namespace dt::kv {

class Operations {
 public:
  /// `memories`: those of the store's own that it reads or writes.
  [[nodiscard]] Handle begin(std::size_t parts, std::vector<std::uint32_t> memories);
  /// One part is done. The first error of them is the operation's.
  void finish_part(Handle handle, std::optional<StoreError> error);
  /// False for what was taken already.
  [[nodiscard]] bool contains(Handle handle) const;
  [[nodiscard]] bool is_done(Handle handle) const;
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
    std::optional<StoreError> error;
    std::vector<std::uint32_t> memories;
  };

  mutable std::mutex mutex_;
  // Under mutex_:
  Handle next_ = 1;
  std::unordered_map<Handle, Pending> pending_;
};

}  // namespace dt::kv
