/// The arrays on devices in a call: the events on their streams that copies wait for, the places
/// that their chunks need, and the source and destination of each request's copies.
///
/// The caller's thread.
#pragma once

#include <memory>
#include <vector>

#include "kvstore/store.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/device/ends.h"
#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/memory_sharing.h"

namespace dt::kv {

class Dispatch;

class ArrayCalls {
 public:
  /// All of them outlive this.
  ArrayCalls(KnownDevices& devices, Dispatch& dispatch, MemorySharing& memory)
      : devices_(devices), dispatch_(dispatch), memory_(memory) {}

  /// The calls on devices for the arrays of one key; null: the array is in host memory.
  struct Call {
    std::shared_ptr<DeviceCall> in;
    std::shared_ptr<DeviceCall> out;
    DeviceCalls ins;  ///< Instead of `in` and `out`: one call per device.
    DeviceCalls outs;
  };
  /// One Call for each key, whose arrays are `values`, `out` or both; empty: all arrays are in
  /// ordinary host memory. May wait for the servers' answers.
  StoreResult<std::vector<Call>> begin(const std::vector<const KeyTable::Key*>& keys,
                                       const std::vector<Array>* values,
                                       const std::vector<Array>* out);
  /// Arrays on devices are copied to and from the chunk's place: its place on their device, if all
  /// are on one device and the chunk has a place there, else its pinned place.
  static void attach(Request& request, const Call& call, const Array* value, const Array* out);
  /// Adds the calls whose streams wait_in_stream() makes wait.
  static void add_uses(const std::vector<Call>& calls, DeviceCalls& uses);

 private:
  KnownDevices& devices_;
  Dispatch& dispatch_;
  MemorySharing& memory_;
};

}  // namespace dt::kv
