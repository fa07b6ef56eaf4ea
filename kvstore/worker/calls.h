/// The arrays on devices in a call: what is to be awaited on their streams, the places that their
/// chunks need, and the ends of each request's copies.
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

  /// What the arrays of one key mean to its requests; null: memory of the host.
  struct Call {
    std::shared_ptr<DeviceCall> in;
    std::shared_ptr<DeviceCall> out;
    DeviceCalls ins;  ///< Of the replicas, instead.
    DeviceCalls outs;
  };
  /// For each of the keys, whose arrays are `values`, `out` or both; empty: all arrays are ordinary
  /// memory of the host. May wait for the servers' answers.
  StoreResult<std::vector<Call>> begin(const std::vector<const KeyBook::Key*>& keys,
                                       const std::vector<Array>* values,
                                       const std::vector<Array>* out);
  /// What is in arrays on devices travels from and to the chunk's place: the one on the device of
  /// all of them, if it has one there, else the pinned one.
  static void attach(Request& request, const Call& call, const Array* value, const Array* out);
  /// Those whose streams wait_in_stream() holds back.
  static void add_uses(const std::vector<Call>& calls, DeviceCalls& uses);

 private:
  KnownDevices& devices_;
  Dispatch& dispatch_;
  MemorySharing& memory_;
};

}  // namespace dt::kv
