/// Where a request's bytes come from and go to in arrays that devices reach.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kvstore/compute/cuda/device.h"

namespace dt::kv {

/// One array of several on different devices, or a part of it.
struct ReplicaEnd {
  int device = 0;
  std::byte* data = nullptr;  ///< At a multiple of 16 bytes.
  /// Recorded on the caller's stream: the array is not touched before.
  std::shared_ptr<const cuda::Event> begin;
  /// What is put on it after on_started() comes after the copy; null: there is none.
  cuda::Stream behind = nullptr;
};

/// A device, and what is under way on it.
struct DeviceLane;

/// What one call of the caller means for an array that devices reach: its copies come after what
/// was on `stream` at the call.
struct DeviceCall {
  std::shared_ptr<DeviceLane> lane;
  int device = 0;
  cuda::Stream stream = nullptr;  ///< The caller's.
  cuda::Event begin;
};
using DeviceCalls = std::vector<std::shared_ptr<DeviceCall>>;

/// A chunk's ends in arrays that devices reach. Copied are those that have an address here: `from`
/// to Request::from's place before it is sent, `into` from the place when it is answered. A request
/// is sent after what both calls wait for.
struct DeviceEnds {
  std::shared_ptr<DeviceCall> in;
  std::shared_ptr<DeviceCall> out;
  const std::byte* from = nullptr;
  std::byte* into = nullptr;
  std::byte* place = nullptr;
  /// Of several devices, instead of `from` and `into` (group_copies.h).
  std::vector<ReplicaEnd> all_from;
  std::vector<ReplicaEnd> all_into;
};

}  // namespace dt::kv
