/// The requests of a call on keys: one for each chunk. For arrays on devices: the events on their
/// streams that copies wait for, the places that their chunks need, and the source and destination
/// of each request's copies.
///
/// The caller's thread.
#pragma once

#include <vector>

#include "kvstore/compute/compression.h"
#include "kvstore/store.h"
#include "kvstore/worker/device/arrays.h"
#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/memory_sharing.h"
#include "kvstore/worker/operations.h"

namespace dt::kv {

class Dispatch;

/// Whether a push of the key is applied on arrival. An auxiliary key's value is the mean over the
/// workers, in dist_async as well.
[[nodiscard]] bool is_async(bool is_async_store, const data::KeySpec& key);

struct KeyedCall {
  data::Type type{};
  const std::vector<const KeyTable::Key*>& keys;
  const Arrays* values;  ///< One per key; null: none are sent.
  const Arrays* out;     ///< The same; null: none are fetched.
  const PushOptions& options;
  const Compression& compression;
  bool is_async = false;  ///< The store is.
};

/// `uses` becomes what the requests use. May wait for the servers' answers.
[[nodiscard]] StoreResult<std::vector<Request>> make_requests(const KeyedCall& call,
                                                              KnownDevices& devices,
                                                              Dispatch& dispatch,
                                                              MemorySharing& memory,
                                                              Operations::Uses& uses);

}  // namespace dt::kv
