/// Arrays on devices for stores that do not copy chunk by chunk: checks that the devices can be
/// used, and copies whole arrays to and from host memory.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/store.h"

namespace dt::kv {

/// Which devices can be used. Each is checked once. One thread at a time.
class KnownDevices {
 public:
  /// An error if one of the arrays is on a device that cannot be used: the cause and the remedy. No
  /// array is touched.
  [[nodiscard]] Status check(const Arrays& arrays);

 private:
  std::map<int, std::string> why_not_;
};

/// Arrays, with host copies of those that are on devices. Waits for the arrays' streams.
class HostArrays {
 public:
  /// Makes no copies yet; the arrays outlive this.
  explicit HostArrays(const Arrays& arrays) : original_(arrays) {}
  /// Makes the copies; `reads`: with the arrays' content. Arrays that stay (null: none) get none,
  /// and their streams are not waited for.
  [[nodiscard]] Status make(KnownDevices& devices, bool reads,
                            const std::function<bool(const Array&)>& stays = {});
  [[nodiscard]] const Arrays& get() const { return copies_.empty() ? original_ : copies_; }
  /// Writes the copies back to their arrays.
  [[nodiscard]] Status write() const;

 private:
  const Arrays& original_;
  Arrays copies_;  ///< Empty: none is needed.
  std::vector<std::unique_ptr<std::byte[]>> memories_;
};

}  // namespace dt::kv
