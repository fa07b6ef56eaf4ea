/// Arrays of float16 and bfloat16, for a store that computes with float32: they belong to float32
/// keys. What is pushed or initialised is widened to float32 by the call, what is pulled is rounded
/// to the array's type, to the nearest, ties to even, by the caller's wait. Calls without such
/// arrays are forwarded unchanged.
///
/// The float32 arrays lie in memory of the inner store. Arrays on devices are copied through host
/// memory: the call waits for their streams, and so does the wait.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvstore/api/blocks.h"
#include "kvstore/api/front_store.h"
#include "kvstore/worker/device/arrays.h"

namespace dt::kv {

class HalfStore final : public FrontStore {
 public:
  explicit HalfStore(std::unique_ptr<Store> inner) : FrontStore(std::move(inner)) {}

  Status init(const Keys& keys, const Arrays& values, std::uint8_t flags) override;
  StoreResult<Handle> begin(const Keys& keys, const Arrays* values, const Arrays* out,
                            const PushOptions& options) override;
  Status pull_state(const Keys& keys, State which, const Arrays& out,
                    std::span<std::uint64_t> updates) override;
  Status init_state(const Keys& keys, State which, const Arrays& values,
                    std::span<const std::uint64_t> updates) override;

 private:
  /// A call's lists as the inner store gets them.
  struct Widened {
    Blocks::Block block;
    Arrays values;
    Arrays out;
    Arrays sources;  ///< The arrays of `out` that are rounded ...
    Arrays targets;  ///< ... and the caller's arrays that they are rounded to.
  };
  /// A list may be null.
  StoreResult<Widened> widen(const Arrays* values, const Arrays* out);
  Status widen_values(const Arrays& values, Widened& call);
  void place_out(const Arrays* values, const Arrays& out, Widened& call);
  Status round(const Widened& call);
  /// Runs `call` with the widened lists; it returns when the arrays are no longer used.
  template <class Call>
  Status with_widened(const Arrays* values, const Arrays* out, Call call);

  Blocks blocks_;
  KnownDevices devices_;
};

}  // namespace dt::kv
