/// A guard that restores the calling thread's current device when it is destroyed, on the same
/// thread, if the process uses that device: restoring one that nobody uses, as that of a fresh
/// thread, would take memory there.
#pragma once

#include "kvstore/compute/cuda/device.h"

namespace dt::kv::cuda {

class DeviceGuard {
 public:
  /// Keeps the current device, and restores it if another is made current meanwhile.
  DeviceGuard() : restores_(current_device(before_).ok()) {}
  /// Makes `device` the current one while this lives.
  explicit DeviceGuard(int device) : DeviceGuard() {
    restores_ = restores_ && before_ != device;
    if (restores_) (void)use_device(device);
  }
  ~DeviceGuard() {
    if (restores_ && has_context(before_)) (void)use_device(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
  bool restores_;
};

}  // namespace dt::kv::cuda
