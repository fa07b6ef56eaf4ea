/// Where memory is.
#pragma once

#include <cstdint>

namespace dt::kv::cuda {

struct Place {
  enum class Kind : std::uint8_t {
    kHost,    ///< ordinary memory
    kPinned,  ///< host memory that devices can access
    kDevice,
  };
  Kind kind = Kind::kHost;
  int device = 0;  ///< the device's number for kDevice; else 0
  friend bool operator==(const Place&, const Place&) = default;
};

}  // namespace dt::kv::cuda
