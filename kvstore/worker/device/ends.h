/// Where a request's bytes come from and go to in arrays on devices.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kvstore/compute/cuda/device.h"

namespace dt::kv {

/// One array of several on different devices, or a part of it.
struct GroupEnd {
  int device = 0;
  std::byte* data = nullptr;  ///< At a multiple of 16 bytes.
  /// Recorded on the caller's stream: the array is not touched before the event has passed.
  std::shared_ptr<const cuda::Event> begin;
  /// Work put on this stream after on_started() runs after the copy; null: there is no such stream.
  cuda::Stream behind = nullptr;
};

/// A device, its streams, and the copies under way on it.
struct DeviceLane;

/// A caller's call for an array on a device: its copies come after what was on `stream` at the
/// call.
struct DeviceCall {
  std::shared_ptr<DeviceLane> lane;
  int device = 0;
  cuda::Stream stream = nullptr;  ///< The caller's.
  cuda::Event begin;
};
using DeviceCalls = std::vector<std::shared_ptr<DeviceCall>>;

/// A chunk's source and destination in arrays on devices; null: no copy. `from` is copied to
/// Request::from's place before the request is sent, and the answer from the place to `into`. The
/// request is sent after the events that both calls wait for.
struct DeviceEnds {
  std::shared_ptr<DeviceCall> in;
  std::shared_ptr<DeviceCall> out;
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  std::byte* place = nullptr;
  /// Arrays on several devices, instead of `from` and `into` (group.h).
  std::vector<GroupEnd> all_from;
  std::vector<GroupEnd> all_into;
};

}  // namespace dt::kv
