#pragma once

#include "kvstore/compute/cuda/device.h"

namespace dt::kv::cuda {

/// Puts the calling thread's current device back at its end. Not for another thread.
class DeviceGuard {
 public:
  /// The device stays; whatever is made current meanwhile, it comes back.
  DeviceGuard() : restores_(current_device(before_).ok()) {}
  /// `device` is the current one as long as this lives.
  explicit DeviceGuard(int device) : DeviceGuard() {
    restores_ = restores_ && before_ != device;
    if (restores_) (void)use_device(device);
  }
  ~DeviceGuard() {
    if (restores_) (void)use_device(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool restores_;
};

}  // namespace dt::kv::cuda
