/// The requests of a call on keys: one for each chunk.
///
/// The caller's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kvstore/compute/compression.h"
#include "kvstore/store.h"
#include "kvstore/worker/calls.h"
#include "kvstore/worker/key_table.h"
#include "kvstore/worker/links/request.h"
#include "kvstore/worker/memory_sharing.h"

namespace dt::kv {

/// Whether a push of the key is applied on arrival. An auxiliary key's value is the mean over the
/// workers, in dist_async as well.
[[nodiscard]] bool is_async(bool is_async_store, const data::KeySpec& key);

struct KeyedCall {
  data::Type type{};
  const std::vector<const KeyTable::Key*>& keys;
  const std::vector<Array>* values;                 ///< One per key; null: none are sent.
  const std::vector<Array>* out;                    ///< The same; null: none are fetched.
  const std::vector<ArrayCalls::Call>& on_devices;  ///< One per key, or empty.
  const PushOptions& options;
  const Compression& compression;
  bool is_async = false;  ///< The store is.
};

/// Adds the numbers of the memories that the requests use to `used`.
[[nodiscard]] std::vector<Request> make_requests(const KeyedCall& call, const MemorySharing& memory,
                                                 std::vector<std::uint32_t>& used);

}  // namespace dt::kv
