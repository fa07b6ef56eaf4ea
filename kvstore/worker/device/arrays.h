/// Arrays that devices reach, for those who do not copy chunk by chunk: whether there is such a
/// device, and such arrays as arrays of the host.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/store.h"

namespace dt::kv {

/// Which devices can be used. Each is looked for once. One thread at a time.
class KnownDevices {
 public:
  /// The first of the arrays that is on a device which cannot be used: what is wrong, and what to
  /// do. Nothing of it is touched.
  [[nodiscard]] Status check(const std::vector<Array>& arrays);

 private:
  std::map<int, std::string> why_not_;
};

/// Arrays, and copies in the host's memory of those that are on devices. Waits for the arrays'
/// streams.
class HostArrays {
 public:
  /// As they are; the arrays outlive this.
  explicit HostArrays(const std::vector<Array>& arrays) : original_(arrays) {}
  /// Makes the copies; `reads`: with the arrays' content.
  [[nodiscard]] Status make(KnownDevices& devices, bool reads);
  [[nodiscard]] const std::vector<Array>& get() const {
    return copies_.empty() ? original_ : copies_;
  }
  /// The copies' content to where they are from.
  [[nodiscard]] Status write() const;

 private:
  const std::vector<Array>& original_;
  std::vector<Array> copies_;  ///< Empty: none is needed.
  std::vector<std::unique_ptr<std::byte[]>> memories_;
};

}  // namespace dt::kv
